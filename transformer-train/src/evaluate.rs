//! Evaluation of a model on held-out examples.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::train::{InferenceStep, ItemLazy};

use crate::data::{BatchSampler, Example, ExampleSource, Examples, ValidLoader};
use crate::error::TrainError;
use crate::metrics::Statistics;
use crate::objective::Objective;
use crate::training_model::TrainingModel;

/// The loss, perplexity and accuracy of a model on examples, by teacher forcing.
///
/// # Errors
/// When an example does not fit a batch or the model.
pub fn evaluate<B: Backend, M: Objective<B>>(
    model: &M,
    examples: Vec<M::Example>,
    batch_tokens: usize,
    label_smoothing: f64,
) -> Result<Statistics, TrainError> {
    let examples = in_memory(model, examples, batch_tokens, 0, "evaluation")?;
    let model = TrainingModel::new(model.clone(), label_smoothing);
    let mut all = Statistics::default();
    for batch in ValidLoader(examples).batches() {
        all.add(&model.step(batch).sync().statistics);
    }
    Ok(all)
}

/// Examples to validate on or to evaluate, which fit the batches and the model.
pub(crate) fn in_memory<B: Backend, M: Objective<B>>(
    model: &M,
    examples: Vec<M::Example>,
    batch_tokens: usize,
    seed: u64,
    part: &'static str,
) -> Result<Examples<M::Example>, TrainError> {
    let sampler = checked(model, &examples, batch_tokens, seed, part)?;
    Ok(Examples {
        all: Arc::new(examples),
        sampler: Arc::new(sampler),
    })
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
