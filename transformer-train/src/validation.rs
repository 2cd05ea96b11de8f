//! Validations: their record, and the hook that measures more.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;

use serde::{Deserialize, Deserializer, Serialize};

use crate::metrics::Statistics;
use crate::run_state::RunState;

/// One validation, and the training since the one before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Validation {
    /// Updates made, skipped ones included.
    pub update: usize,
    /// Updates skipped until now, because their loss or gradients were not finite.
    #[serde(default)]
    pub skipped: usize,
    /// Seconds spent training, validation and saving left out.
    pub seconds: f64,
    /// Target tokens trained on since the last validation.
    pub train_tokens: u64,
    /// Label-smoothed training loss since the last validation, in nats per token; NaN if every update since
    /// was skipped.
    #[serde(deserialize_with = "null_is_nan")]
    pub train_loss: f64,
    /// Label-smoothed validation loss, in nats per token.
    pub valid_loss: f64,
    /// Negative log-likelihood on validation, in nats per token.
    pub valid_nll: f64,
    /// Share of the validation labels that were the model's first choice, in percent.
    pub valid_accuracy: f64,
    /// The numbers that [`Trainer::on_validation`](crate::Trainer::on_validation) measured, by name.
    #[serde(default, deserialize_with = "nulls_are_nan")]
    pub numbers: BTreeMap<String, f64>,
}

/// JSON has no NaN: it is written as `null`.
pub(crate) fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// [`null_is_nan`], for each value.
fn nulls_are_nan<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let numbers = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    let numbers = numbers.into_iter();
    Ok(numbers
        .map(|(name, number)| (name, number.unwrap_or(f64::NAN)))
        .collect())
}

impl Validation {
    pub(crate) fn new(run: &RunState, train: &Statistics, valid: &Statistics) -> Self {
        Self {
            update: run.update,
            skipped: run.skipped,
            seconds: run.seconds,
            train_tokens: train.tokens as u64,
            train_loss: train.mean_loss(),
            valid_loss: valid.mean_loss(),
            valid_nll: valid.mean_nll(),
            valid_accuracy: valid.accuracy(),
            numbers: BTreeMap::new(),
        }
    }
}

/// The argument of the function of [`Trainer::on_validation`](crate::Trainer::on_validation).
#[derive(Debug)]
#[non_exhaustive]
pub struct ValidationContext<'a, M> {
    /// The model as it is now, without gradients.
    pub model: &'a M,
    /// Updates made.
    pub update: usize,
    /// Loss and accuracy on the validation examples.
    pub statistics: &'a Statistics,
    /// The validations before this one, in order, with those before a resume.
    pub earlier: &'a [Validation],
}

type Measured<T> = Result<ControlFlow<T, T>, Box<dyn Error + Send + Sync>>;
type Measure<M> = dyn FnMut(ValidationContext<'_, M>) -> Measured<Vec<f64>>;

/// A hook's numbers; the run ends after `Break`.
pub(crate) type HookNumbers = ControlFlow<Vec<f64>, Vec<f64>>;

/// Measures further numbers at each validation, and may end the run.
pub(crate) struct ValidationHook<M> {
    pub names: Vec<String>,
    measure: Box<Measure<M>>,
}

impl<M> ValidationHook<M> {
    pub fn new<const N: usize>(
        names: [&str; N],
        mut hook: impl FnMut(ValidationContext<'_, M>) -> Measured<[f64; N]> + 'static,
    ) -> Self {
        Self {
            names: names.map(str::to_owned).into(),
            measure: Box::new(move |context| {
                Ok(match hook(context)? {
                    ControlFlow::Continue(numbers) => ControlFlow::Continue(numbers.into()),
                    ControlFlow::Break(numbers) => ControlFlow::Break(numbers.into()),
                })
            }),
        }
    }

    /// A number for each of the names.
    pub fn measure(&mut self, context: ValidationContext<'_, M>) -> Measured<Vec<f64>> {
        (self.measure)(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE_NUMBERS: &str = r#"{"update": 4, "seconds": 0.5, "train_tokens": 90,
        "train_loss": 2.5, "valid_loss": 2.25, "valid_nll": 2.0, "valid_accuracy": 12.5}"#;

    #[test]
    fn a_record_without_numbers_is_read() {
        let validation: Validation = serde_json::from_str(BEFORE_NUMBERS).unwrap();
        assert_eq!((validation.update, validation.numbers.len()), (4, 0));
        assert_eq!(validation.skipped, 0);
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
