//! Validations: their record, and the hook for further metrics.

mod best;
pub(crate) mod evaluate;
#[cfg(feature = "text")]
pub(crate) mod text;

pub use evaluate::evaluate;
#[cfg(feature = "text")]
pub use text::TextValidation;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Deserializer, Serialize};

use crate::objective::statistics::{Statistics, null_is_nan};

/// One validation, and the training since the previous one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Validation {
    /// Number of updates, including skipped ones.
    pub update: usize,
    /// Number of updates skipped so far because their loss or gradients were not finite.
    #[serde(default)]
    pub skipped: usize,
    /// Whether the run stopped here, by its time limit or its number of updates, before a validation was due. It does not
    /// count for [`patience`](crate::TrainingConfig::patience).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
    /// Seconds spent training, excluding validation and saving.
    pub seconds: f64,
    /// Target tokens trained on since the last validation.
    pub train_tokens: u64,
    /// Label-smoothed training loss since the last validation, in nats per token; NaN if every update since then
    /// was skipped.
    #[serde(deserialize_with = "null_is_nan")]
    pub train_loss: f64,
    /// Label-smoothed validation loss, in nats per token.
    pub valid_loss: f64,
    /// Negative log-likelihood of the validation labels, in nats per token; NaN if it is not finite.
    #[serde(deserialize_with = "null_is_nan")]
    pub valid_nll: f64,
    /// Fraction of validation labels that the model predicted, in percent; NaN if it is not finite.
    #[serde(deserialize_with = "null_is_nan")]
    pub valid_accuracy: f64,
    /// The metrics of [`Trainer::validate_with`](crate::Trainer::validate_with) and
    /// [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn), by name. One that is not finite is NaN, and never
    /// the best.
    #[serde(default, deserialize_with = "nulls_are_nan")]
    pub numbers: BTreeMap<String, f64>,
}

/// The metrics that every validation has, besides those of its hook, by the names that [`Validation::number`]
/// accepts.
pub(crate) const OWN_NUMBERS: [&str; 3] = ["loss", "perplexity", "accuracy"];

/// [`null_is_nan`], for each value.
fn nulls_are_nan<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let numbers = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    let numbers = numbers.into_iter();
    Ok(numbers
        .map(|(name, number)| (name, number.unwrap_or(f64::NAN)))
        .collect())
}

impl Validation {
    /// One of its metrics: `loss`, which is label-smoothed, `perplexity`, `accuracy` in percent, or one of
    /// [`numbers`](Self::numbers); `None` if there is no metric with that name.
    pub fn number(&self, name: &str) -> Option<f64> {
        let mut all = self.all_numbers();
        all.find_map(|(own, value)| (own == name).then_some(value))
    }

    /// All its metrics with their names: [`OWN_NUMBERS`], then those of its hook.
    pub(crate) fn all_numbers(&self) -> impl Iterator<Item = (&str, f64)> {
        let own = [self.valid_loss, self.valid_nll.exp(), self.valid_accuracy];
        let measured = self.numbers.iter();
        let measured = measured.map(|(name, value)| (name.as_str(), *value));
        OWN_NUMBERS.into_iter().zip(own).chain(measured)
    }
}

/// The average of a run's last checkpoints (§6.1), made and validated at the end of the run
/// ([`TrainingConfig::average_last`](crate::TrainingConfig::average_last)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AverageOutcome {
    /// The updates of its checkpoints, in order: fewer than `average_last` if the run had fewer.
    pub checkpoints: Vec<usize>,
    /// Its validation. Nothing was trained since the previous one, so it has no training tokens, and NaN as
    /// training loss.
    pub validation: Validation,
    /// Whether it was better than every earlier validation
    /// ([`TrainingConfig::best_by`](crate::TrainingConfig::best_by)), and became the directory's model.
    pub kept: bool,
}

impl AverageOutcome {
    /// Whether it is the average of these checkpoints, made after this update.
    pub(crate) fn is_of(&self, update: usize, checkpoints: &[usize]) -> bool {
        self.validation.update == update && self.checkpoints == checkpoints
    }
}

/// Measures further metrics at each validation, and may end the run: the argument of
/// [`Trainer::validate_with`](crate::Trainer::validate_with).
///
/// `TextValidation`, with the feature `text`, implements it;
/// [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn) accepts a function instead.
///
/// ```
/// use burn::module::Module;
/// use burn::tensor::backend::Backend;
/// use transformer_train::validation::{
///     HookError, Measurement, ValidationContext, ValidationMetrics,
/// };
///
/// struct Parameters;
///
/// impl<B: Backend, M: Module<B>> ValidationMetrics<B, M> for Parameters {
///     fn names(&self) -> Vec<String> {
///         vec!["Parameters".into()]
///     }
///
///     fn measure(&mut self, at: ValidationContext<'_, M>) -> Result<Measurement, HookError> {
///         Ok(Measurement::new(vec![at.model.num_params() as f64]))
///     }
/// }
/// ```
pub trait ValidationMetrics<B: Backend, M> {
    /// The names of the metrics, for displays and the record of the run.
    fn names(&self) -> Vec<String>;

    /// Number of samples that each measurement shows. Default: none.
    fn samples(&self) -> usize {
        0
    }

    /// Checks, before the first update, that the model can be measured. By default, all can.
    ///
    /// # Errors
    /// The problem. The run then does not start.
    fn check(&self, _model: &M) -> Result<(), HookError> {
        Ok(())
    }

    /// Measures a model: one value per name.
    ///
    /// # Errors
    /// The problem. The run then ends, and can be resumed.
    fn measure(&mut self, at: ValidationContext<'_, M>) -> Result<Measurement, HookError>;
}

/// An error of a validation hook.
pub type HookError = Box<dyn Error + Send + Sync>;

/// The model at a validation, with the results so far: the argument of [`ValidationMetrics::measure`] and of the
/// function of [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn).
#[derive(Debug)]
#[non_exhaustive]
pub struct ValidationContext<'a, M> {
    /// The current model, without gradients; with [`TrainingConfig::ema_decay`](crate::TrainingConfig::ema_decay),
    /// its averaged weights. At the end of the run, the average of its last checkpoints
    /// ([`TrainingConfig::average_last`](crate::TrainingConfig::average_last)).
    pub model: &'a M,
    /// Number of updates.
    pub update: usize,
    /// Loss and accuracy on the validation examples.
    pub statistics: &'a Statistics,
    /// The earlier validations, in order, including those before a resume.
    pub earlier: &'a [Validation],
}

impl<'a, M> ValidationContext<'a, M> {
    /// The context of a model after `update` updates, with its loss and accuracy on the validation examples
    /// ([`evaluate`]) and the earlier validations.
    pub fn new(
        model: &'a M,
        update: usize,
        statistics: &'a Statistics,
        earlier: &'a [Validation],
    ) -> Self {
        Self {
            model,
            update,
            statistics,
            earlier,
        }
    }
}

// Not derived, which would require `M: Copy`.
impl<M> Clone for ValidationContext<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for ValidationContext<'_, M> {}

/// The result of [`ValidationMetrics::measure`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// One value per name.
    pub numbers: Vec<f64>,
    /// Sample outputs for displays, at most [`ValidationMetrics::samples`].
    pub samples: Vec<SampleOutput>,
    /// `Break` ends the run after this validation.
    pub flow: ControlFlow<()>,
}

impl Measurement {
    /// Values, after which the run continues.
    pub fn new(numbers: Vec<f64>) -> Self {
        Self {
            numbers,
            samples: Vec::new(),
            flow: ControlFlow::Continue(()),
        }
    }
}

/// An output of a model for a validation input, with the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleOutput {
    /// The input.
    pub source: String,
    /// The output.
    pub hypothesis: String,
    /// The expected output.
    pub reference: String,
}

impl fmt::Display for SampleOutput {
    /// Prints one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            hypothesis,
            reference,
        } = self;
        write!(f, "{source} → {hypothesis} (reference: {reference})")
    }
}

/// Everything that is measured at a validation besides the loss.
pub(crate) struct ValidationHook<B: Backend, M> {
    pub names: Vec<String>,
    /// Number of samples that each measurement shows.
    pub samples: usize,
    metrics: Vec<Box<dyn ValidationMetrics<B, M>>>,
}

impl<B: Backend, M> Default for ValidationHook<B, M> {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            samples: 0,
            metrics: Vec::new(),
        }
    }
}

impl<B: Backend, M> ValidationHook<B, M> {
    /// Adds metrics.
    pub fn add(&mut self, metrics: impl ValidationMetrics<B, M> + 'static) {
        self.names.extend(metrics.names());
        self.samples += metrics.samples();
        self.metrics.push(Box::new(metrics));
    }

    pub fn check(&self, model: &M) -> Result<(), HookError> {
        let mut metrics = self.metrics.iter();
        metrics.try_for_each(|metrics| metrics.check(model))
    }

    /// One value per name.
    pub fn measure(&mut self, at: ValidationContext<'_, M>) -> Result<Measurement, HookError> {
        let mut all = Measurement::new(Vec::new());
        for metrics in &mut self.metrics {
            let (names, samples) = (metrics.names(), metrics.samples());
            let measured = metrics.measure(at)?;
            // Values and names are matched by position.
            if measured.numbers.len() != names.len() {
                let found = measured.numbers.len();
                let problem = format!("{found} values for the metrics `{}`", names.join("`, `"));
                return Err(problem.into());
            }
            all.numbers.extend(measured.numbers);
            all.samples
                .extend(measured.samples.into_iter().take(samples));
            if measured.flow.is_break() {
                all.flow = measured.flow;
            }
        }
        Ok(all)
    }
}

/// The function of [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn).
pub(crate) struct HookFunction<F, const N: usize> {
    pub names: [String; N],
    pub function: F,
}

impl<B, M, F, const N: usize> ValidationMetrics<B, M> for HookFunction<F, N>
where
    B: Backend,
    F: FnMut(ValidationContext<'_, M>) -> Result<ControlFlow<[f64; N], [f64; N]>, HookError>,
{
    fn names(&self) -> Vec<String> {
        self.names.to_vec()
    }

    fn measure(&mut self, at: ValidationContext<'_, M>) -> Result<Measurement, HookError> {
        Ok(match (self.function)(at)? {
            ControlFlow::Continue(numbers) => Measurement::new(numbers.into()),
            ControlFlow::Break(numbers) => Measurement {
                flow: ControlFlow::Break(()),
                ..Measurement::new(numbers.into())
            },
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A validation with a metric named `BLEU`.
    pub(crate) fn validation(update: usize, bleu: f64) -> Validation {
        let mut validation: Validation = serde_json::from_str(BEFORE_NUMBERS).unwrap();
        validation.update = update;
        validation.numbers.insert("BLEU".into(), bleu);
        validation
    }

    const BEFORE_NUMBERS: &str = r#"{"update": 4, "seconds": 0.5, "train_tokens": 90,
        "train_loss": 2.5, "valid_loss": 2.25, "valid_nll": 2.0, "valid_accuracy": 12.5}"#;

    #[test]
    fn a_record_without_numbers_is_read() {
        let validation: Validation = serde_json::from_str(BEFORE_NUMBERS).unwrap();
        assert_eq!((validation.update, validation.numbers.len()), (4, 0));
        assert_eq!(validation.skipped, 0);
    }

    #[test]
    fn numbers_are_found_by_name() {
        let validation = validation(4, 37.5);
        let numbers = OWN_NUMBERS.map(|name| validation.number(name));
        let expected = [2.25, 2.0_f64.exp(), 12.5].map(Some);
        assert_eq!(numbers, expected);
        assert_eq!(validation.number("BLEU"), Some(37.5));
        assert_eq!(validation.number("chrF"), None);
    }

    #[test]
    fn nan_is_read_back_as_nan() {
        let mut validation: Validation = serde_json::from_str(BEFORE_NUMBERS).unwrap();
        validation.train_loss = f64::NAN;
        validation.numbers = BTreeMap::from([("a".into(), f64::NAN), ("b".into(), 0.1)]);
        let json = serde_json::to_string(&validation).unwrap();
        let read: Validation = serde_json::from_str(&json).unwrap();
        assert!(read.train_loss.is_nan());
        assert!(read.numbers["a"].is_nan());
        assert_eq!(read.numbers["b"], 0.1);
    }
}
