//! The numbers by which validations are compared.

use serde::{Deserialize, Serialize};
use transformer_train::Goal;
use transformer_train::metrics::TextMetric;

/// A number by which one validation is better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BestBy {
    /// The label-smoothed loss.
    Loss,
    /// The perplexity.
    Perplexity,
    /// The token accuracy.
    Accuracy,
    /// [`TextMetric::Bleu`].
    Bleu,
    /// [`TextMetric::Chrf`].
    Chrf,
    /// [`TextMetric::ExactMatch`].
    ExactMatch,
    /// [`TextMetric::WordErrorRate`].
    #[serde(rename = "wer", alias = "word_error_rate")]
    WordErrorRate,
    /// [`TextMetric::TokenErrorRate`].
    TokenErrorRate,
}

impl BestBy {
    /// The metric that measures it; `None` for the numbers of every validation.
    pub fn metric(self) -> Option<TextMetric> {
        match self {
            Self::Loss | Self::Perplexity | Self::Accuracy => None,
            Self::Bleu => Some(TextMetric::Bleu),
            Self::Chrf => Some(TextMetric::Chrf),
            Self::ExactMatch => Some(TextMetric::ExactMatch),
            Self::WordErrorRate => Some(TextMetric::WordErrorRate),
            Self::TokenErrorRate => Some(TextMetric::TokenErrorRate),
        }
    }

    /// Its name in the record of a run.
    pub fn number(self) -> &'static str {
        match (self, self.metric()) {
            (_, Some(metric)) => metric.name(),
            (Self::Perplexity, None) => "perplexity",
            (Self::Accuracy, None) => "accuracy",
            (_, None) => "loss",
        }
    }

    /// Which of its values are better.
    pub fn goal(self) -> Goal {
        match (self, self.metric()) {
            (_, Some(metric)) => metric.goal(),
            (Self::Accuracy, None) => Goal::Highest,
            (_, None) => Goal::Lowest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_can_be_the_one_and_has_its_name() {
        for metric in TextMetric::ALL {
            let best_by: BestBy = toml::Value::try_from(metric).unwrap().try_into().unwrap();
            assert_eq!(best_by.metric(), Some(metric));
            assert_eq!(
                (best_by.number(), best_by.goal()),
                (metric.name(), metric.goal())
            );
        }
        assert_eq!(BestBy::Accuracy.goal(), Goal::Highest);
        assert_eq!(
            (BestBy::Loss.number(), BestBy::Loss.goal()),
            ("loss", Goal::Lowest)
        );
    }
}
