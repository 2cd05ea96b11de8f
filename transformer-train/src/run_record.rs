//! The record of a training run, read from its directory.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::checkpoint::{CHECKPOINTS, RUN_FILE, is_missing, whole_checkpoints};
use crate::config::TrainingConfig;
use crate::error::TrainError;
use crate::run_state::same_settings;
use crate::validation::{AverageOutcome, Validation};

/// The record of a training run, as of its newest checkpoint.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// Updates made.
    #[serde(rename = "update")]
    pub updates: usize,
    /// Seconds spent training, validation and saving left out.
    pub seconds: f64,
    /// The configuration of the training.
    pub config: TrainingConfig,
    /// Examples to train on.
    #[serde(rename = "pairs")]
    pub examples: usize,
    /// All validations, in order.
    pub validations: Vec<Validation>,
    /// The averages of checkpoints that were made where the run ended, in order.
    #[serde(default)]
    pub averages: Vec<AverageOutcome>,
    /// The directories of the checkpoints, the oldest first: the newest ones, and those of the best
    /// validations. Empty in the record of one checkpoint.
    #[serde(skip)]
    pub checkpoints: Vec<PathBuf>,
}

impl RunRecord {
    /// Reads the record of the run in a directory, or that of one of its checkpoints; `None` where
    /// there is no run.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged.
    pub fn load(directory: impl AsRef<Path>) -> Result<Option<Self>, TrainError> {
        let directory = directory.as_ref();
        let checkpoints = whole_checkpoints(directory).map_err(TrainError::io(directory))?;
        let checkpoints: Vec<_> = checkpoints.into_iter().map(|(_, path)| path).collect();
        // A checkpoint is a model directory itself.
        let newest = checkpoints.last().map_or(directory, PathBuf::as_path);
        let path = newest.join(RUN_FILE);
        let json = match fs::read(&path) {
            Ok(json) => json,
            Err(error) if checkpoints.is_empty() && is_missing(&error) => return Ok(None),
            Err(error) => return Err(TrainError::io(path)(error)),
        };
        match serde_json::from_slice::<Self>(&json) {
            Ok(record) => Ok(Some(Self {
                checkpoints,
                ..record
            })),
            Err(error) => Err(TrainError::Damaged {
                path,
                problem: error.to_string(),
            }),
        }
    }

    /// Checks that a run with these settings goes on with this one, as [`Trainer::resume`](crate::Trainer::resume)
    /// does before the first update.
    ///
    /// # Errors
    /// [`TrainError::OtherRun`], which names the first setting that must not change.
    pub fn check_settings(&self, now: &TrainingConfig) -> Result<(), TrainError> {
        let newest = self
            .checkpoints
            .last()
            .map_or(Path::new(""), PathBuf::as_path);
        same_settings(newest, &self.config, now)
    }

    /// The updates that the schedule of the learning rate has made, with those that the run continued: what
    /// [`TrainingConfig::schedule_start`] is for a run that goes on with this run's rates.
    pub fn schedule_updates(&self) -> usize {
        self.config.schedule_start.saturating_add(self.updates)
    }
}

/// Whether a training run has begun in a directory, even if it has not saved anything yet.
pub fn holds_run(directory: impl AsRef<Path>) -> bool {
    directory.as_ref().join(CHECKPOINTS).is_dir()
}
