//! The metrics in the displays of a training run: means over tokens rather than over batches, and the
//! numbers and sample outputs that the hooks of a validation measure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use super::statistics::{Numbers, Samples, Statistics, UpdateItem};

/// The beginning of the names of sample outputs; a number follows.
const SAMPLE: &str = "Sample ";

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
        Self::new("Perplexity", Statistics::perplexity, false)
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
        // The first update after a pause has no earlier time to be measured from.
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

/// The Euclidean norm of an update's gradients together, before clipping. The mean of a round is over the
/// updates that are not skipped.
#[derive(Debug, Clone)]
pub(crate) struct GradientNorm {
    name: MetricName,
    current: f64,
    sum: f64,
    updates: usize,
}

impl GradientNorm {
    /// No norm yet.
    pub fn new() -> Self {
        Self {
            name: Arc::new("Gradient norm".to_owned()),
            current: f64::NAN,
            sum: 0.0,
            updates: 0,
        }
    }

    fn mean(&self) -> f64 {
        self.sum / self.updates as f64
    }
}

impl Metric for GradientNorm {
    type Input = UpdateItem;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes {
            unit: None,
            higher_is_better: false,
        }
        .into()
    }

    fn update(&mut self, item: &UpdateItem, _metadata: &MetricMetadata) -> SerializedEntry {
        self.current = item.gradient_norm;
        if item.is_finite() {
            self.sum += item.gradient_norm;
            self.updates += 1;
        }
        SerializedEntry::new(
            format!("round {:.3} - update {:.3}", self.mean(), self.current),
            self.value().serialize(),
        )
    }

    fn clear(&mut self) {
        *self = Self::new();
    }
}

impl Numeric for GradientNorm {
    fn value(&self) -> NumericEntry {
        NumericEntry::Value(self.current)
    }

    fn running_value(&self) -> NumericEntry {
        NumericEntry::Value(self.mean())
    }
}

/// The number of skipped updates, as text: a plot of it would show nothing.
#[derive(Debug, Clone)]
pub(crate) struct SkippedUpdates {
    name: MetricName,
}

impl SkippedUpdates {
    pub fn new() -> Self {
        let name = Arc::new("Skipped updates".to_owned());
        Self { name }
    }
}

impl Metric for SkippedUpdates {
    type Input = UpdateItem;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn update(&mut self, item: &UpdateItem, _metadata: &MetricMetadata) -> SerializedEntry {
        let skipped = item.skipped.to_string();
        SerializedEntry::new(skipped.clone(), skipped)
    }

    fn clear(&mut self) {}
}

/// A number of a whole validation: NaN except with the batch that carries it.
#[derive(Debug, Clone)]
pub(crate) struct ValidationNumber {
    name: MetricName,
    index: usize,
    current: f64,
}

impl ValidationNumber {
    /// The number with this index among those of a validation.
    pub fn new(name: &str, index: usize) -> Self {
        Self {
            name: Arc::new(name.to_owned()),
            index,
            current: f64::NAN,
        }
    }
}

impl Metric for ValidationNumber {
    type Input = Numbers;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes::default().into()
    }

    fn update(&mut self, numbers: &Numbers, _metadata: &MetricMetadata) -> SerializedEntry {
        self.current = numbers
            .values()
            .get(self.index)
            .copied()
            .unwrap_or(f64::NAN);
        SerializedEntry::new(format!("{:.3}", self.current), self.value().serialize())
    }

    fn clear(&mut self) {
        self.current = f64::NAN;
    }
}

impl Numeric for ValidationNumber {
    fn value(&self) -> NumericEntry {
        NumericEntry::Value(self.current)
    }

    fn running_value(&self) -> NumericEntry {
        self.value()
    }
}

/// A sample output of a validation, as text for displays. The entry of the batch that carries the sample saves
/// source, hypothesis and reference, separated by tabs; the entries of other batches save nothing.
#[derive(Debug, Clone)]
pub(crate) struct SampleText {
    name: MetricName,
    index: usize,
    /// The text of the last validation, which displays show until the next.
    shown: String,
}

impl SampleText {
    /// The sample with this index among those of a validation.
    pub fn new(index: usize) -> Self {
        Self {
            name: Arc::new(Self::title(index)),
            index,
            shown: String::new(),
        }
    }

    /// The name of the sample with this index.
    pub fn title(index: usize) -> String {
        format!("{SAMPLE}{}", index + 1)
    }
}

impl Metric for SampleText {
    type Input = Samples;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn update(&mut self, samples: &Samples, _metadata: &MetricMetadata) -> SerializedEntry {
        let Some(sample) = samples.0.get(self.index) else {
            return SerializedEntry::new(self.shown.clone(), String::new());
        };
        self.shown = sample.to_string();
        let fields = [&sample.source, &sample.hypothesis, &sample.reference];
        let fields = fields.map(|field| field.replace('\t', " "));
        SerializedEntry::new(self.shown.clone(), fields.join("\t"))
    }

    fn clear(&mut self) {}
}
