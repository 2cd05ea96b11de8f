//! The state of a run, and the settings that must not change when it is resumed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::TrainingConfig;
use crate::error::{TrainError, same_config};
use crate::metrics::{Statistics, UpdateItem};
use crate::validation::Validation;

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// Updates made or skipped.
    pub update: usize,
    /// Updates skipped.
    #[serde(default)]
    pub skipped: usize,
    /// Updates skipped since the last one that was made.
    #[serde(default)]
    pub skipped_in_a_row: usize,
    pub seconds: f64,
    pub config: TrainingConfig,
    #[serde(rename = "pairs")]
    pub examples: usize,
    #[serde(rename = "pairs_checksum")]
    pub checksum: u32,
    pub validations: Vec<Validation>,
    /// Statistics of the training since the last of them.
    pub since_validation: Statistics,
}

impl RunState {
    /// The start of a run on so many examples, with this checksum.
    pub fn new(config: &TrainingConfig, examples: usize, checksum: u32) -> Self {
        Self {
            update: 0,
            skipped: 0,
            skipped_in_a_row: 0,
            seconds: 0.0,
            config: config.clone(),
            examples,
            checksum,
            validations: Vec::new(),
            since_validation: Statistics::default(),
        }
    }

    /// Counts the next update, which is skipped unless it is finite.
    pub fn count(&mut self, item: &UpdateItem) {
        self.update += 1;
        match item.is_finite() {
            true => {
                self.skipped_in_a_row = 0;
                self.since_validation.add(&item.statistics);
            }
            false => {
                self.skipped_in_a_row += 1;
                self.skipped += 1;
            }
        }
    }

    /// The update of the last validation.
    pub fn validated_update(&self) -> usize {
        self.validations.last().map_or(0, |last| last.update)
    }

    /// Whether no validation before had as low a loss.
    pub fn is_best(&self, validation: &Validation) -> bool {
        let earlier = &mut self.validations.iter();
        earlier.all(|earlier| earlier.valid_loss > validation.valid_loss)
    }

    /// Checks that a run with the settings and data of `now` continues this one. `name` is the noun
    /// for an example.
    pub fn continues_as(&self, now: &Self, path: &Path, name: &str) -> Result<(), TrainError> {
        // Settings that may change: the length of training, unless the learning rate depends on it, and
        // those without effect on the weights.
        let comparable = |state: &Self| TrainingConfig {
            updates: match state.config.schedule.falls_to_zero() {
                true => state.config.updates,
                false => 0,
            },
            validate_every: 0,
            keep_checkpoints: 0,
            skip_limit: 0,
            ..state.config.clone()
        };
        same_config(path, &comparable(self), &comparable(now))?;
        let data = |state: &Self| {
            let Self {
                examples, checksum, ..
            } = state;
            format!("{examples} {name}s of checksum {checksum:08x}")
        };
        if data(self) != data(now) {
            return Err(TrainError::OtherRun {
                path: path.to_owned(),
                what: "training data of".into(),
                before: data(self),
                now: data(now),
            });
        }
        Ok(())
    }
}
