//! The loss of a batch, and the gradients of an update.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::backend::{AutodiffBackend, Backend};

use crate::data::Update;
use crate::objective::loss::{LossOptions, LossSums};
use crate::objective::statistics::DeviceStatistics;
use crate::objective::{Objective, Trainable};

/// The loss of a model on a batch.
pub(crate) fn sums<B: Backend, M: Objective<B>>(
    model: &M,
    examples: &[M::Example],
    options: &LossOptions,
) -> LossSums<B> {
    let batch = model.batch(examples, &device(model));
    model.loss(batch, options)
}

/// The device of a model; the default device if it has no parameters.
pub(crate) fn device<B: Backend>(model: &impl Module<B>) -> B::Device {
    model.devices().into_iter().next().unwrap_or_default()
}

/// The gradient of the loss summed over these batches and divided by the weight of the whole update; and the sums.
///
/// # Panics
/// When the update has no batches.
pub(crate) fn gradients<B: AutodiffBackend, M: Trainable<B>>(
    model: &M,
    update: &Update<<M as Objective<B>>::Example>,
    options: &LossOptions,
) -> (GradientsParams, DeviceStatistics<B::InnerBackend>) {
    let mut accumulator = GradientsAccumulator::new();
    let mut statistics: Option<DeviceStatistics<B::InnerBackend>> = None;
    for examples in &update.batches {
        let sums = sums::<B, M>(model, examples, options);
        let gradients = (sums.loss.clone() / update.loss_weight as f64).backward();
        accumulator.accumulate(model, GradientsParams::from_grads(gradients, model));
        statistics = Some(DeviceStatistics::new(sums.inner()).added_to(statistics));
    }
    let statistics = statistics.expect("an update has a batch");
    (accumulator.grads(), statistics)
}
