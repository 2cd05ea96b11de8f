//! A model with its loss, as Burn's Learner trains it.

use std::marker::PhantomData;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{InferenceStep, TrainOutput, TrainStep};

use crate::data::Update;
use crate::loss::TokenSums;
use crate::metrics::{DeviceStatistics, ValidationItem};
use crate::objective::{Objective, Trainable};

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

impl<B: AutodiffBackend, M: Trainable<B>> TrainStep for TrainingModel<B, M> {
    type Input = Update<<M as Objective<B>>::Example>;
    type Output = DeviceStatistics<B::InnerBackend>;

    /// The gradient of the mean loss over the tokens of all batches of the update.
    fn step(&self, update: Self::Input) -> TrainOutput<Self::Output> {
        let mut accumulator = GradientsAccumulator::new();
        let mut statistics: Option<Self::Output> = None;
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
        TrainOutput {
            grads: accumulator.grads(),
            item: statistics.expect("an update has a batch"),
        }
    }
}

impl<B: Backend, M: Objective<B>> InferenceStep for TrainingModel<B, M> {
    type Input = Vec<M::Example>;
    type Output = ValidationItem<DeviceStatistics<B>>;

    fn step(&self, examples: Self::Input) -> Self::Output {
        ValidationItem::new(DeviceStatistics::new(self.sums(&examples)))
    }
}
