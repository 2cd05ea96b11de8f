//! Evaluation of a model on held-out examples.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::train::{InferenceStep, ItemLazy};

use crate::data::{BatchSampler, Example, Examples, ValidLoader};
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
    let examples = checked(model, examples, batch_tokens, 0, "evaluation")?;
    let model = TrainingModel::new(model.clone(), label_smoothing);
    let mut all = Statistics::default();
    for batch in ValidLoader(examples).batches() {
        all.add(&model.step(batch).sync().statistics);
    }
    Ok(all)
}

/// Checks that examples fit the batches and the model, and prepares them for a run.
pub(crate) fn checked<B: Backend, M: Objective<B>>(
    model: &M,
    examples: Vec<M::Example>,
    batch_tokens: usize,
    seed: u64,
    part: &'static str,
) -> Result<Examples<M::Example>, TrainError> {
    let name = M::Example::NAME;
    for (index, example) in examples.iter().enumerate() {
        model
            .check(example)
            .map_err(|problem| TrainError::Example {
                part,
                name,
                index,
                problem,
            })?;
    }
    let sampler = BatchSampler::new(&examples, batch_tokens, seed)
        .map_err(|source| TrainError::Batches { part, name, source })?;
    Ok(Examples {
        all: Arc::new(examples),
        sampler: Arc::new(sampler),
    })
}
