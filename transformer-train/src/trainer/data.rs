//! The examples of a run, in batches.

use std::sync::Arc;

use burn::tensor::backend::AutodiffBackend;

use super::setup::Setup;
use crate::config::TrainingConfig;
use crate::data::{BatchSampler, Example, ExampleSource, Examples};
use crate::error::TrainError;
use crate::evaluate::{checked, in_memory};
use crate::objective::{Objective, Trainable};
use crate::run_state::ExampleSet;

/// The examples of a run, which fit the batches and, as far as they have been read, the model.
pub(super) struct Data<E: Example> {
    /// The examples to train on.
    pub train: Arc<dyn ExampleSource<Example = E>>,
    /// Their batches.
    pub sampler: BatchSampler,
    /// The examples to validate on.
    pub valid: Examples<E>,
    /// Identifies the examples to train on when a run is resumed.
    pub train_set: ExampleSet,
    /// Identifies the examples to validate on.
    pub valid_set: ExampleSet,
}

impl<B: AutodiffBackend, M: Trainable<B>> Setup<B, M> {
    pub(super) fn data(
        &self,
        model: &M,
        train: Arc<dyn ExampleSource<Example = <M as Objective<B>>::Example>>,
        valid: Vec<<M as Objective<B>>::Example>,
    ) -> Result<Data<<M as Objective<B>>::Example>, TrainError> {
        let TrainingConfig {
            batch_tokens, seed, ..
        } = self.config;
        let sampler = checked(model, &*train, batch_tokens, seed, "training")?;
        let train_set = ExampleSet {
            examples: sampler.len(),
            checksum: train.checksum(),
        };
        let valid_set = ExampleSet {
            examples: valid.len(),
            checksum: valid.checksum(),
        };
        let valid = in_memory(model, valid, batch_tokens, seed, "validation")?;
        Ok(Data {
            train,
            sampler,
            valid,
            train_set,
            valid_set,
        })
    }
}
