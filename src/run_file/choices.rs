//! The metrics by which validations are compared.

use serde::de::{Error, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use transformer_train::metrics::Criterion;
use transformer_train::metrics::TextMetric;

/// A metric by which validations are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BestBy {
    /// The label-smoothed loss.
    Loss,
    /// The perplexity.
    Perplexity,
    /// The token accuracy.
    Accuracy,
    /// A metric of translations.
    Metric(TextMetric),
}

impl BestBy {
    /// The metrics of every validation.
    const OWN: [Self; 3] = [Self::Loss, Self::Perplexity, Self::Accuracy];

    /// The metric of translations; `None` for the metrics of every validation.
    pub fn metric(self) -> Option<TextMetric> {
        match self {
            Self::Metric(metric) => Some(metric),
            Self::Loss | Self::Perplexity | Self::Accuracy => None,
        }
    }

    /// Its name in a run file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Perplexity => "perplexity",
            Self::Accuracy => "accuracy",
            Self::Metric(metric) => metric.key(),
        }
    }

    /// The library's criterion.
    pub fn criterion(self) -> Criterion {
        match self {
            Self::Loss | Self::Perplexity => Criterion::lowest(self.key()),
            Self::Accuracy => Criterion::highest(self.key()),
            Self::Metric(metric) => metric.into(),
        }
    }
}

impl Serialize for BestBy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.key())
    }
}

impl<'de> Deserialize<'de> for BestBy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if let Some(own) = Self::OWN.into_iter().find(|own| own.key() == name) {
            return Ok(own);
        }
        let metric: Result<_, D::Error> = TextMetric::deserialize(name.into_deserializer());
        metric.map(Self::Metric).map_err(|_| {
            let own = Self::OWN.map(Self::key).into_iter();
            let names: Vec<_> = own.chain(TextMetric::ALL.map(TextMetric::key)).collect();
            D::Error::custom(format!("expected one of `{}`", names.join("`, `")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_can_select_the_best_model_by_its_name() {
        for metric in TextMetric::ALL {
            let best_by: BestBy = toml::Value::try_from(metric).unwrap().try_into().unwrap();
            assert_eq!(best_by.metric(), Some(metric));
            let Criterion { number, goal } = best_by.criterion();
            assert_eq!((&*number, goal), (metric.name(), metric.goal()));
        }
        for own in BestBy::OWN {
            let written = toml::Value::try_from(own).unwrap();
            assert_eq!(written.try_into::<BestBy>().unwrap(), own);
            assert_eq!(own.metric(), None);
        }
        let criteria = BestBy::OWN.map(BestBy::criterion);
        let expected = [
            Criterion::lowest("loss"),
            Criterion::lowest("perplexity"),
            Criterion::highest("accuracy"),
        ];
        assert_eq!(criteria, expected);
    }
}
