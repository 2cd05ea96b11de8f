//! Finds the best of several validations.

use crate::metrics::criterion::Criterion;
use crate::validation::Validation;

impl Criterion {
    /// The value of the metric in a validation; NaN if it was not measured.
    pub fn value(&self, validation: &Validation) -> f64 {
        validation.number(&self.number).unwrap_or(f64::NAN)
    }

    /// The best validation, the earliest of equals; `None` if none has the metric.
    pub fn best<'a>(
        &self,
        validations: impl IntoIterator<Item = &'a Validation>,
    ) -> Option<&'a Validation> {
        self.ranked(validations).into_iter().next()
    }

    /// The validations that have the metric, best first; equals in their order.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::validation;

    /// Validations with these values, after updates 1, 2, ….
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
}
