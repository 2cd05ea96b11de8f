//! Evaluation of a model on held-out examples.

use burn::tensor::backend::Backend;
use burn::train::ItemLazy;

use crate::error::TrainError;
use crate::loaders::{Batches, checked};
use crate::objective::Objective;
use crate::objective::gradients::sums;
use crate::objective::loss::LossOptions;
use crate::objective::statistics::{DeviceStatistics, Statistics};

/// The loss, perplexity and accuracy of a model on examples, with teacher forcing. On a backend with gradients
/// (`Autodiff`), dropout is active: evaluate `model.valid()` instead.
///
/// # Errors
/// When an example does not fit a batch or the model.
pub fn evaluate<B: Backend, M: Objective<B>>(
    model: &M,
    examples: Vec<M::Example>,
    batch_tokens: usize,
    options: &LossOptions,
) -> Result<Statistics, TrainError> {
    let sampler = checked(model, &examples, batch_tokens, 0, "evaluation")?;
    Ok(measured(model, &Batches::of(examples, &sampler), options))
}

/// The sums of a model over batches.
pub(crate) fn measured<B: Backend, M: Objective<B>>(
    model: &M,
    batches: &Batches<M::Example>,
    options: &LossOptions,
) -> Statistics {
    let mut all = Statistics::default();
    for batch in batches.batches() {
        all.add(&DeviceStatistics::new(sums(model, &batch, options)).sync());
    }
    all
}
