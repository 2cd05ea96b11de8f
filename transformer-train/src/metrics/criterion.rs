//! The metric by which validations are compared: it decides which model and which checkpoints are kept, and when
//! early stopping ends the run.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// A validation metric, and whether higher or lower values are better. By default, the lowest loss.
///
/// ```
/// use transformer_train::TrainingConfig;
/// use transformer_train::metrics::Criterion;
///
/// let run = TrainingConfig {
///     best_by: Criterion::highest("BLEU"),
///     patience: Some(5),
///     ..TrainingConfig::default()
/// };
/// assert!(run.best_by.is_better(37.1, 36.9));
/// assert!(!run.best_by.is_better(f64::NAN, 36.9));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// Name of the metric: `loss`, `perplexity`, `accuracy`, or one measured by
    /// [`Trainer::validate_with`](crate::Trainer::validate_with) or
    /// [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn)
    /// ([`Validation::number`](crate::validation::Validation::number)).
    pub number: String,
    /// Which values are better.
    pub goal: Goal,
}

/// Which values of a metric are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Lower values, as for a loss or an error rate.
    Lowest,
    /// Higher values, as for BLEU or accuracy.
    Highest,
}

impl Default for Criterion {
    fn default() -> Self {
        Self::lowest("loss")
    }
}

impl Criterion {
    /// Lower values are better.
    pub fn lowest(number: impl Into<String>) -> Self {
        Self {
            number: number.into(),
            goal: Goal::Lowest,
        }
    }

    /// Higher values are better.
    pub fn highest(number: impl Into<String>) -> Self {
        Self {
            number: number.into(),
            goal: Goal::Highest,
        }
    }

    /// Whether `value` is better than `than`. NaN is not better than any value, and every other value is better
    /// than NaN.
    pub fn is_better(&self, value: f64, than: f64) -> bool {
        !value.is_nan() && (than.is_nan() || self.order(value, than) == Ordering::Less)
    }

    /// Orders two values, the better first.
    pub(crate) fn order(&self, a: f64, b: f64) -> Ordering {
        let ascending = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
        match self.goal {
            Goal::Lowest => ascending,
            Goal::Highest => ascending.reverse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_better_than_nothing_and_everything_is_better_than_nan() {
        for criterion in [Criterion::lowest("BLEU"), Criterion::highest("BLEU")] {
            for other in [f64::NAN, 0.0, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(!criterion.is_better(f64::NAN, other), "{other}");
                let expected = !other.is_nan();
                assert_eq!(criterion.is_better(other, f64::NAN), expected, "{other}");
                assert!(!criterion.is_better(other, other), "{other}");
            }
        }
        assert!(Criterion::lowest("a").is_better(-1.0, 1.0));
        assert!(!Criterion::lowest("a").is_better(1.0, -1.0));
        assert!(Criterion::highest("a").is_better(1.0, -1.0));
        assert!(!Criterion::highest("a").is_better(-1.0, 1.0));
    }

    #[test]
    fn a_criterion_is_written_by_names() {
        let json = serde_json::to_string(&Criterion::highest("BLEU")).unwrap();
        assert_eq!(json, r#"{"number":"BLEU","goal":"highest"}"#);
        let read: Criterion = serde_json::from_str(&json).unwrap();
        assert_eq!(read, Criterion::highest("BLEU"));
    }
}
