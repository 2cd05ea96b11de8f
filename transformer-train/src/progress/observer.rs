//! Observers of a run, and the numbers that they are given.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::config::TrainingConfig;
use crate::error::ObserverError;
use crate::validation::{AverageOutcome, SampleOutput, Validation, null_is_nan};

/// Receives the numbers of a run as it goes, by [`Trainer::observer`](crate::Trainer::observer): to log them, to
/// show them, to send them somewhere.
///
/// Every method does nothing unless it is implemented. An observer cannot change or end a run: one that fails
/// once the run has started is not called again, the others are, and its error is in
/// [`Trained::observer_errors`](crate::Trained::observer_errors).
///
/// ```
/// use transformer_train::progress::{ObserverError, RunObserver, TrainingPoint};
///
/// /// Prints the lowest training loss so far.
/// struct Lowest(f64);
///
/// impl RunObserver for Lowest {
///     fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
///         if point.loss < self.0 {
///             self.0 = point.loss;
///             println!("update {}: {:.3}", point.update, point.loss);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait RunObserver {
    /// Before the first update, of a new run or of one that is resumed. Earlier observations of a resumed run after
    /// [`RunStart::update`] are superseded: those updates are made again.
    ///
    /// # Errors
    /// An error ends the run, before anything is lost ([`TrainError::Observer`](crate::TrainError::Observer)).
    fn on_start(&mut self, start: &RunStart<'_>) -> Result<(), ObserverError> {
        let _ = start;
        Ok(())
    }

    /// After the first update; then after every [`Trainer::observe_every`](crate::Trainer::observe_every) updates,
    /// after half a minute without a point, before a validation and before a checkpoint. Each update is part of one
    /// point.
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
        let _ = point;
        Ok(())
    }

    /// After each update, for a display: `update` has its own numbers, NaN where it was skipped, and `interval` those of
    /// all updates since the last validation or the start. A log needs no more than
    /// [`on_training`](Self::on_training).
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_update(
        &mut self,
        update: &TrainingPoint,
        interval: &TrainingPoint,
    ) -> Result<(), ObserverError> {
        let _ = (update, interval);
        Ok(())
    }

    /// At once after an update that was skipped.
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_skip(&mut self, skipped: &SkippedUpdate) -> Result<(), ObserverError> {
        let _ = skipped;
        Ok(())
    }

    /// After each validation, before its checkpoint.
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_validation(&mut self, validation: &Validation) -> Result<(), ObserverError> {
        let _ = validation;
        Ok(())
    }

    /// At the end of the run, after the mean of its last checkpoints was validated
    /// ([`TrainingConfig::average_last`]). That validation is not passed to
    /// [`on_validation`](Self::on_validation).
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_average(&mut self, average: &AverageOutcome) -> Result<(), ObserverError> {
        let _ = average;
        Ok(())
    }

    /// At the end of the run, also of one that fails.
    ///
    /// # Errors
    /// As for the other methods; if the run fails, this error is lost.
    fn on_end(&mut self) -> Result<(), ObserverError> {
        Ok(())
    }

    /// After a validation that shows sample outputs ([`TextValidation::samples`](crate::validation::TextValidation::samples)).
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_samples(&mut self, samples: &[SampleOutput]) -> Result<(), ObserverError> {
        let _ = samples;
        Ok(())
    }
}

/// Where a run begins or goes on.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RunStart<'a> {
    /// Updates made before, skipped ones included; 0 in a new run.
    pub update: usize,
    /// Seconds spent training before, validation and saving left out.
    pub seconds: f64,
    /// The validations before, in order.
    pub validations: &'a [Validation],
    /// The averages of checkpoints that were made before, where the run had ended, in order.
    pub averages: &'a [AverageOutcome],
    /// How the model is trained.
    pub config: &'a TrainingConfig,
    /// When the run ends, however many updates it has made; `None` without such a limit.
    pub deadline: Option<Instant>,
}

/// The training since the point before: means over the tokens of its updates, those that were skipped left out.
/// Where all were, the means are NaN, which JSON writes as `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrainingPoint {
    /// The last update of the point, from 1.
    pub update: usize,
    /// Updates that it is about, skipped ones included.
    pub updates: usize,
    /// Updates that the run has skipped so far.
    pub skipped: usize,
    /// Seconds of the run spent training so far, validation and saving left out.
    pub seconds: f64,
    /// Target tokens trained on.
    pub tokens: u64,
    /// Label-smoothed loss, in nats per token.
    #[serde(deserialize_with = "null_is_nan")]
    pub loss: f64,
    /// `exp` of the negative log-likelihood per token, without smoothing.
    #[serde(deserialize_with = "null_is_nan")]
    pub perplexity: f64,
    /// Share of the labels that were the model's first choice, in percent.
    #[serde(deserialize_with = "null_is_nan")]
    pub accuracy: f64,
    /// The learning rate of the last update.
    pub learning_rate: f64,
    /// Target tokens trained on per second, padding not counted.
    #[serde(deserialize_with = "null_is_nan")]
    pub tokens_per_second: f64,
    /// The Euclidean norm of an update's gradients together, before clipping: the mean over the updates.
    #[serde(deserialize_with = "null_is_nan")]
    pub gradient_norm: f64,
}

/// An update that was skipped, because its loss or its gradients are not finite.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SkippedUpdate {
    /// The update, from 1.
    pub update: usize,
    /// Its label-smoothed loss, in nats per token.
    pub loss: f64,
    /// The Euclidean norm of its gradients together.
    pub gradient_norm: f64,
}
