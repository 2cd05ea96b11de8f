//! Metrics of a training run, each a mean over tokens rather than over batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::train::ItemLazy;
use burn::train::metric::{
    Adaptor, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes,
    NumericEntry, SerializedEntry,
};

use serde::{Deserialize, Serialize};

use crate::loss::TokenSums;

/// Sums over the tokens of one or more batches.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// The label-smoothed loss, in nats.
    pub loss: f64,
    /// The negative log-likelihood of the labels, in nats.
    pub nll: f64,
    /// Labels that were the model's first choice.
    pub correct: f64,
    /// Real tokens.
    pub tokens: f64,
}

impl Statistics {
    /// Label-smoothed loss per token, in nats.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.tokens
    }

    /// Negative log-likelihood per token, in nats.
    pub fn mean_nll(&self) -> f64 {
        self.nll / self.tokens
    }

    /// `exp` of the negative log-likelihood per token.
    pub fn perplexity(&self) -> f64 {
        self.mean_nll().exp()
    }

    /// Share of the labels that were the model's first choice, in percent.
    pub fn accuracy(&self) -> f64 {
        100.0 * self.correct / self.tokens
    }

    /// Adds the sums of further tokens.
    pub fn add(&mut self, other: &Self) {
        self.loss += other.loss;
        self.nll += other.nll;
        self.correct += other.correct;
        self.tokens += other.tokens;
    }
}

/// [`TokenSums`] still on the device: one tensor, so that they are read back at once.
#[derive(Debug, Clone)]
pub struct DeviceStatistics<B: Backend>(Tensor<B, 1>);

impl<B: Backend> DeviceStatistics<B> {
    pub(crate) fn new(sums: TokenSums<B>) -> Self {
        Self(Tensor::cat(
            vec![sums.loss, sums.nll, sums.correct, sums.tokens],
            0,
        ))
    }

    /// Adds the sums of further batches.
    pub(crate) fn add(self, other: Self) -> Self {
        let device = self.0.device();
        Self(self.0 + other.0.to_device(&device))
    }
}

impl<B: Backend> ItemLazy for DeviceStatistics<B> {
    type ItemSync = Statistics;

    fn sync(self) -> Statistics {
        let mut sums = self
            .0
            .into_data()
            .convert::<f64>()
            .into_vec::<f64>()
            .into_iter()
            .flatten();
        let mut next = || sums.next().unwrap_or(f64::NAN);
        Statistics {
            loss: next(),
            nll: next(),
            correct: next(),
            tokens: next(),
        }
    }
}

impl Adaptor<Statistics> for Statistics {
    fn adapt(&self) -> Statistics {
        *self
    }
}

/// The metric whose mean over tokens is geometric.
pub(crate) const PERPLEXITY: &str = "Perplexity";

/// A mean over tokens: loss, perplexity or accuracy.
#[derive(Debug, Clone)]
pub struct TokenMean {
    name: MetricName,
    mean: fn(&Statistics) -> f64,
    higher_is_better: bool,
    current: Statistics,
    all: Statistics,
}

impl TokenMean {
    /// Label-smoothed loss, in nats per token.
    pub fn loss() -> Self {
        Self::new("Loss", Statistics::mean_loss, false)
    }

    /// Perplexity per token, without smoothing.
    pub fn perplexity() -> Self {
        Self::new(PERPLEXITY, Statistics::perplexity, false)
    }

    /// Share of the labels that are the model's first choice, in percent.
    pub fn accuracy() -> Self {
        Self::new("Token accuracy", Statistics::accuracy, true)
    }

    fn new(name: &str, mean: fn(&Statistics) -> f64, higher_is_better: bool) -> Self {
        Self {
            name: Arc::new(name.to_owned()),
            mean,
            higher_is_better,
            current: Statistics::default(),
            all: Statistics::default(),
        }
    }

    fn entry(&self, statistics: &Statistics) -> NumericEntry {
        NumericEntry::Aggregated {
            aggregated_value: (self.mean)(statistics),
            count: statistics.tokens as usize,
        }
    }
}

impl Metric for TokenMean {
    type Input = Statistics;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes {
            unit: None,
            higher_is_better: self.higher_is_better,
        }
        .into()
    }

    fn update(&mut self, item: &Statistics, _metadata: &MetricMetadata) -> SerializedEntry {
        self.current = *item;
        self.all.add(item);
        let (all, current) = ((self.mean)(&self.all), (self.mean)(item));
        SerializedEntry::new(
            format!("round {all:.3} - update {current:.3}"),
            self.value().serialize(),
        )
    }

    fn clear(&mut self) {
        self.current = Statistics::default();
        self.all = Statistics::default();
    }
}

impl Numeric for TokenMean {
    fn value(&self) -> NumericEntry {
        self.entry(&self.current)
    }

    fn running_value(&self) -> NumericEntry {
        self.entry(&self.all)
    }
}

/// Target tokens trained on per second, padding not counted.
#[derive(Debug, Clone)]
pub struct Throughput {
    name: MetricName,
    last: Option<Instant>,
    current: f64,
    tokens: f64,
    elapsed: Duration,
}

impl Throughput {
    /// A clock that has not started.
    pub fn new() -> Self {
        Self {
            name: Arc::new("Target tokens/s".to_owned()),
            last: None,
            current: f64::NAN,
            tokens: 0.0,
            elapsed: Duration::ZERO,
        }
    }

    fn mean(&self) -> f64 {
        self.tokens / self.elapsed.as_secs_f64()
    }
}

impl Default for Throughput {
    fn default() -> Self {
        Self::new()
    }
}

impl Metric for Throughput {
    type Input = Statistics;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn update(&mut self, item: &Statistics, _metadata: &MetricMetadata) -> SerializedEntry {
        let now = Instant::now();
        // The first update after a pause has nothing to be measured from.
        if let Some(last) = self.last.replace(now) {
            let elapsed = now - last;
            self.current = item.tokens / elapsed.as_secs_f64();
            self.tokens += item.tokens;
            self.elapsed += elapsed;
        }
        SerializedEntry::new(
            format!("round {:.0} - update {:.0}", self.mean(), self.current),
            self.value().serialize(),
        )
    }

    fn clear(&mut self) {
        *self = Self::new();
    }
}

impl Numeric for Throughput {
    fn value(&self) -> NumericEntry {
        NumericEntry::Value(self.current)
    }

    fn running_value(&self) -> NumericEntry {
        NumericEntry::Value(self.mean())
    }
}
