//! Evaluation of a model on held-out examples.

use burn::tensor::backend::Backend;
use burn::train::ItemLazy;

use crate::data::{BatchSampler, Example, ExampleSource};
use crate::error::TrainError;
use crate::loaders::Batches;
use crate::metrics::{DeviceStatistics, Statistics};
use crate::objective::Objective;
use crate::objective::gradients::sums;
use crate::objective::loss::LossOptions;

/// The loss, perplexity and accuracy of a model on examples, by teacher forcing.
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

/// The batches of examples, after those that are to be checked before a run were checked against the model.
pub(crate) fn checked<B: Backend, M: Objective<B>>(
    model: &M,
    examples: &dyn ExampleSource<Example = M::Example>,
    batch_tokens: usize,
    seed: u64,
    part: &'static str,
) -> Result<BatchSampler, TrainError> {
    for index in examples.checked_first() {
        check(model, &examples.get(index, 0)?, index, part)?;
    }
    let name = M::Example::NAME;
    BatchSampler::of_source(examples, batch_tokens, seed).map_err(|source| TrainError::Batches {
        part,
        name,
        source,
    })
}

/// Checks that the model can learn from the example at position `index`.
pub(crate) fn check<B: Backend, M: Objective<B>>(
    model: &M,
    example: &M::Example,
    index: usize,
    part: &'static str,
) -> Result<(), TrainError> {
    let name = M::Example::NAME;
    model.check(example).map_err(|problem| TrainError::Example {
        part,
        name,
        index,
        problem,
    })
}
