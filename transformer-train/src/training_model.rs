//! A model with its loss, as Burn's Learner trains it.

use std::marker::PhantomData;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{InferenceStep, TrainOutput, TrainStep};

use crate::data::Update;
use crate::loss::TokenSums;
use crate::metrics::{DeviceStatistics, UpdateItem, ValidationItem};
use crate::objective::{Objective, Trainable};
use crate::optimizer::global_norm;

/// A model with its training loss.
#[derive(Module, Debug)]
pub struct TrainingModel<B: Backend, M> {
    /// The model.
    pub model: M,
    label_smoothing: f64,
    backend: PhantomData<B>,
}

impl<B: Backend, M: Objective<B>> TrainingModel<B, M> {
    /// Wraps a model for training or evaluation.
    pub fn new(model: M, label_smoothing: f64) -> Self {
        Self {
            model,
            label_smoothing,
            backend: PhantomData,
        }
    }

    fn sums(&self, examples: &[M::Example]) -> TokenSums<B> {
        let batch = self.model.batch(examples, &device(&self.model));
        self.model.loss(batch, self.label_smoothing)
    }
}

/// The device of a model; the default one if it has no parameters.
pub(crate) fn device<B: Backend>(model: &impl Module<B>) -> B::Device {
    model.devices().into_iter().next().unwrap_or_default()
}

impl<B: AutodiffBackend, M: Trainable<B>> TrainingModel<B, M> {
    /// The gradient of the sum over these batches, divided by the tokens of the whole update; and the sums.
    pub(crate) fn gradients(
        &self,
        update: &Update<<M as Objective<B>>::Example>,
    ) -> (GradientsParams, DeviceStatistics<B::InnerBackend>) {
        let mut accumulator = GradientsAccumulator::new();
        let mut statistics: Option<DeviceStatistics<B::InnerBackend>> = None;
        for examples in &update.batches {
            let sums = self.sums(examples);
            let gradients = (sums.loss.clone() / update.loss_tokens as f64).backward();
            accumulator.accumulate(self, GradientsParams::from_grads(gradients, self));
            let batch_statistics = DeviceStatistics::new(sums.inner());
            statistics = Some(match statistics {
                Some(statistics) => statistics.add(batch_statistics),
                None => batch_statistics,
            });
        }
        let statistics = statistics.expect("an update has a batch");
        (accumulator.grads(), statistics)
    }
}

impl<B: AutodiffBackend, M: Trainable<B>> TrainStep for TrainingModel<B, M> {
    type Input = Update<<M as Objective<B>>::Example>;
    type Output = UpdateItem;

    /// The gradient of the mean loss over the tokens of all batches of the update; the loss and the norm of
    /// the gradients, read back from the device.
    fn step(&self, update: Self::Input) -> TrainOutput<Self::Output> {
        let (grads, statistics) = self.gradients(&update);
        let item = UpdateItem::read(statistics, global_norm::<B, Self>(self, &grads));
        TrainOutput { grads, item }
    }
}

impl<B: Backend, M: Objective<B>> InferenceStep for TrainingModel<B, M> {
    type Input = Vec<M::Example>;
    type Output = ValidationItem<DeviceStatistics<B>>;

    fn step(&self, examples: Self::Input) -> Self::Output {
        ValidationItem::new(DeviceStatistics::new(self.sums(&examples)))
    }
}
