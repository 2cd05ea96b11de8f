//! The result of a run.

use crate::progress::ObserverError;
use crate::update_loop::{Outcome, StopReason};
use crate::validation::{AverageOutcome, Validation};

/// A trained model and the record of its training.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trained<M> {
    /// The model after the last update, without gradients; with
    /// [`TrainingConfig::ema_decay`](crate::TrainingConfig::ema_decay), that of the averaged weights.
    pub model: M,
    /// All validations, in order, with those before a resume.
    pub validations: Vec<Validation>,
    /// Updates made, with those before a resume and those that were skipped.
    pub updates: usize,
    /// Updates skipped, because their loss or gradients were not finite.
    pub skipped: usize,
    /// Why the run ended.
    pub stopped: StopReason,
    /// The mean of the last checkpoints ([`TrainingConfig::average_last`](crate::TrainingConfig::average_last));
    /// `None` if none was made: without a directory, in an interrupted run, or where there is only one checkpoint.
    pub average: Option<AverageOutcome>,
    /// The errors of observers that failed during the run, such as that of a log which could not be written
    /// any more. The run went on without them.
    pub observer_errors: Vec<ObserverError>,
}

impl<M> Trained<M> {
    pub(super) fn new(model: M, outcome: Outcome) -> Self {
        let Outcome {
            state,
            stopped,
            average,
            observer_errors,
        } = outcome;
        Self {
            model,
            validations: state.validations,
            updates: state.update,
            skipped: state.skipped,
            stopped,
            average,
            observer_errors,
        }
    }
}
