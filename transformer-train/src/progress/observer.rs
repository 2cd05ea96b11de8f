//! Observers of a run, and the metrics that they receive.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::config::TrainingConfig;
use crate::error::ObserverError;
use crate::objective::statistics::null_is_nan;
use crate::validation::{AverageOutcome, SampleOutput, Validation};

/// Receives the metrics of a run in progress, to log, display or send them
/// ([`Trainer::observer`](crate::Trainer::observer)).
///
/// The default of every method does nothing. An observer cannot change or end a run: one that fails after the
/// start is not called again, the others are, and its error is in
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
    /// Called before the first update of a new or resumed run. In a resumed run, earlier observations after
    /// [`RunStart::update`] are superseded: those updates are repeated.
    ///
    /// # Errors
    /// An error ends the run before anything is lost ([`TrainError::Observer`](crate::TrainError::Observer)).
    fn on_start(&mut self, start: &RunStart<'_>) -> Result<(), ObserverError> {
        let _ = start;
        Ok(())
    }

    /// Called after the first update; then every [`Trainer::observe_every`](crate::Trainer::observe_every)
    /// updates, after half a minute without a point, before a validation and before a checkpoint. Each update
    /// belongs to one point.
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
        let _ = point;
        Ok(())
    }

    /// Called after each update, for displays: `update` has its own metrics, NaN if it was skipped, and `interval`
    /// those of all updates since the last validation or the start. For logs, [`on_training`](Self::on_training)
    /// is enough.
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

    /// Called immediately after a skipped update.
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_skip(&mut self, skipped: &SkippedUpdate) -> Result<(), ObserverError> {
        let _ = skipped;
        Ok(())
    }

    /// Called after each validation, before its checkpoint.
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_validation(&mut self, validation: &Validation) -> Result<(), ObserverError> {
        let _ = validation;
        Ok(())
    }

    /// Called at the end of the run, after the average of its last checkpoints was validated
    /// ([`TrainingConfig::average_last`]). That validation is not passed to
    /// [`on_validation`](Self::on_validation).
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_average(&mut self, average: &AverageOutcome) -> Result<(), ObserverError> {
        let _ = average;
        Ok(())
    }

    /// Called at the end of the run, even if the run fails.
    ///
    /// # Errors
    /// As for the other methods; if the run fails, this error is lost.
    fn on_end(&mut self) -> Result<(), ObserverError> {
        Ok(())
    }

    /// Called after a validation that shows sample outputs
    /// ([`TextValidation::samples`](crate::validation::TextValidation::samples)).
    ///
    /// # Errors
    /// The observer is not called again.
    fn on_samples(&mut self, samples: &[SampleOutput]) -> Result<(), ObserverError> {
        let _ = samples;
        Ok(())
    }
}

/// The state in which a run starts or resumes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RunStart<'a> {
    /// Number of earlier updates, including skipped ones; 0 in a new run.
    pub update: usize,
    /// Seconds spent training before, excluding validation and saving.
    pub seconds: f64,
    /// The earlier validations, in order.
    pub validations: &'a [Validation],
    /// The earlier averages of checkpoints, made at the ends of the run, in order.
    pub averages: &'a [AverageOutcome],
    /// How the model is trained.
    pub config: &'a TrainingConfig,
    /// When the run ends, regardless of its updates; `None` without such a limit.
    pub deadline: Option<Instant>,
}

/// The training since the previous point: means over the tokens of its updates, excluding skipped ones. If all
/// were skipped, the means are NaN, which JSON represents as `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrainingPoint {
    /// The last update of the point, from 1.
    pub update: usize,
    /// Number of its updates, including skipped ones.
    pub updates: usize,
    /// Total number of updates skipped so far.
    pub skipped: usize,
    /// Seconds spent training so far, excluding validation and saving.
    pub seconds: f64,
    /// Target tokens trained on.
    pub tokens: u64,
    /// Label-smoothed loss, in nats per token.
    #[serde(deserialize_with = "null_is_nan")]
    pub loss: f64,
    /// `exp` of the negative log-likelihood per token, without smoothing.
    #[serde(deserialize_with = "null_is_nan")]
    pub perplexity: f64,
    /// Fraction of labels that the model predicted, in percent.
    #[serde(deserialize_with = "null_is_nan")]
    pub accuracy: f64,
    /// The learning rate of the last update.
    pub learning_rate: f64,
    /// Target tokens trained on per second, without padding.
    #[serde(deserialize_with = "null_is_nan")]
    pub tokens_per_second: f64,
    /// The Euclidean norm of all gradients of an update, before clipping: the mean over the updates.
    #[serde(deserialize_with = "null_is_nan")]
    pub gradient_norm: f64,
}

/// An update that was skipped because its loss or gradients were not finite.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SkippedUpdate {
    /// The update, from 1.
    pub update: usize,
    /// Its label-smoothed loss, in nats per token.
    pub loss: f64,
    /// The Euclidean norm of all its gradients.
    pub gradient_norm: f64,
}
