//! The number by which validations are compared: it decides which model is kept, which checkpoints, and when
//! a run is no longer patient.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::validation::Validation;

/// A number of a validation, and which of its values are the better ones. By default, the lowest loss.
///
/// ```
/// use transformer_train::{Criterion, TrainingConfig};
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
    /// Its name: `loss`, `perplexity`, `accuracy`, or one that
    /// [`Trainer::validate_with`](crate::Trainer::validate_with) or
    /// [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn) measures ([`Validation::number`]).
    pub number: String,
    /// Which values are better.
    pub goal: Goal,
}

/// Which values of a number are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Lower ones, as of a loss or an error rate.
    Lowest,
    /// Higher ones, as of BLEU or an accuracy.
    Highest,
}

impl Default for Criterion {
    fn default() -> Self {
        Self::lowest("loss")
    }
}

impl Criterion {
    /// The lower, the better.
    pub fn lowest(number: impl Into<String>) -> Self {
        Self {
            number: number.into(),
            goal: Goal::Lowest,
        }
    }

    /// The higher, the better.
    pub fn highest(number: impl Into<String>) -> Self {
        Self {
            number: number.into(),
            goal: Goal::Highest,
        }
    }

    /// Whether a value is better than another. NaN is better than none, and every other value is better than
    /// NaN.
    pub fn is_better(&self, value: f64, than: f64) -> bool {
        !value.is_nan() && (than.is_nan() || self.order(value, than) == Ordering::Less)
    }

    /// The number of a validation; NaN if it was not measured.
    pub fn value(&self, validation: &Validation) -> f64 {
        validation.number(&self.number).unwrap_or(f64::NAN)
    }

    /// The best validation, the first one where several are alike; `None` where none has the number.
    pub fn best<'a>(
        &self,
        validations: impl IntoIterator<Item = &'a Validation>,
    ) -> Option<&'a Validation> {
        self.ranked(validations).into_iter().next()
    }

    /// The validations that have the number, the best first; of those that are alike, the earlier first.
    pub(crate) fn ranked<'a>(
        &self,
        validations: impl IntoIterator<Item = &'a Validation>,
    ) -> Vec<&'a Validation> {
        let mut ranked: Vec<_> = validations
            .into_iter()
            .filter(|validation| !self.value(validation).is_nan())
            .collect();
        ranked.sort_by(|a, b| self.order(self.value(a), self.value(b)));
        ranked
    }

    /// The order of two numbers, the better first.
    fn order(&self, a: f64, b: f64) -> Ordering {
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
    use crate::validation::tests::validation;

    /// Validations with these numbers, after the updates 1, 2, ….
    fn validations(numbers: &[f64]) -> Vec<Validation> {
        let numbered = (1..).zip(numbers);
        numbered
            .map(|(update, &number)| validation(update, number))
            .collect()
    }

    fn updates(ranked: &[&Validation]) -> Vec<usize> {
        ranked.iter().map(|validation| validation.update).collect()
    }

    #[test]
    fn the_best_come_first_the_earlier_of_equals_before_the_later_and_nan_nowhere() {
        let all = validations(&[f64::NAN, 3.0, 5.0, 3.0, f64::NAN, 5.0, -0.0, 0.0]);
        let highest = Criterion::highest("BLEU");
        assert_eq!(updates(&highest.ranked(&all)), [3, 6, 2, 4, 7, 8]);
        assert_eq!(highest.best(&all).unwrap().update, 3);
        let lowest = Criterion::lowest("BLEU");
        assert_eq!(updates(&lowest.ranked(&all)), [7, 8, 2, 4, 3, 6]);
        assert_eq!(lowest.best(&all).unwrap().update, 7);
        assert_eq!(lowest.best(&validations(&[f64::NAN])), None);
        assert_eq!(Criterion::lowest("chrF").best(&all), None);
    }

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
