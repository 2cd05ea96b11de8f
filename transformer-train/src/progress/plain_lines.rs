//! Progress as plain lines.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

use burn::train::metric::{MetricDefinition, MetricEntry, MetricId, NumericEntry};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};

use crate::metrics::{PERPLEXITY, SAMPLE, SKIPPED};

/// Updates between two lines.
const LINE_EVERY: usize = 50;

/// The longest wait for a line.
const LINE_WITHIN: Duration = Duration::from_secs(30);

/// One line every 50 updates or 30 seconds, one for each validation and for each update that is skipped; after
/// that of a validation, three for each of its sample outputs.
pub struct PlainLines {
    out: Box<dyn Write + Send + Sync>,
    names: HashMap<MetricId, String>,
    /// Metrics in the order of their first values.
    metrics: Vec<(String, Mean)>,
    /// Loss and gradient norm of the current update, if it is skipped.
    skipped: Option<String>,
    /// Source, hypothesis and reference of each sample output since the last line, separated by tabs.
    samples: Vec<String>,
    last_line: Option<Instant>,
}

/// A mean weighted by tokens, since the last line.
#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
    /// Whether the mean is geometric: the sum is of logarithms.
    geometric: bool,
}

impl Mean {
    fn of(metric: &str) -> Self {
        Self {
            geometric: metric == PERPLEXITY,
            ..Self::default()
        }
    }

    fn add(&mut self, value: f64, weight: f64) {
        let value = if self.geometric { value.ln() } else { value };
        if value.is_finite() {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn get(&self) -> Option<f64> {
        let mean = (self.weight > 0.0).then(|| self.sum / self.weight)?;
        Some(if self.geometric { mean.exp() } else { mean })
    }
}

impl Default for PlainLines {
    /// Lines on standard output.
    fn default() -> Self {
        Self::new(std::io::stdout())
    }
}

impl PlainLines {
    /// Lines written to `out`.
    pub fn new(out: impl Write + Send + Sync + 'static) -> Self {
        Self {
            out: Box::new(out),
            names: HashMap::new(),
            metrics: Vec::new(),
            skipped: None,
            samples: Vec::new(),
            last_line: None,
        }
    }

    fn note(&mut self, state: MetricState) {
        let (entry, value) = match state {
            MetricState::Numeric(entry, value) => (entry, value),
            MetricState::Generic(entry) => return self.note_text(entry),
        };
        let Some(name) = self.names.get(&entry.metric_id) else {
            return;
        };
        let (value, weight) = match value {
            NumericEntry::Value(value) => (value, 1.0),
            NumericEntry::Aggregated {
                aggregated_value,
                count,
            } => (aggregated_value, count as f64),
        };
        let index = self.metrics.iter().position(|(known, _)| known == name);
        let index = index.unwrap_or_else(|| {
            self.metrics.push((name.clone(), Mean::of(name)));
            self.metrics.len() - 1
        });
        self.metrics[index].1.add(value, weight);
    }

    fn note_text(&mut self, entry: MetricEntry) {
        let text = entry.serialized_entry.serialized;
        // Nothing new.
        if text.is_empty() {
            return;
        }
        match self.names.get(&entry.metric_id).map(String::as_str) {
            Some(SKIPPED) => self.skipped = Some(text),
            Some(name) if name.starts_with(SAMPLE) => self.samples.push(text),
            _ => {}
        }
    }

    /// Writes the sample outputs since the last line.
    fn write_samples(&mut self) {
        for sample in self.samples.drain(..) {
            let titles = ["source", "hypothesis", "reference"];
            for (title, text) in titles.iter().zip(sample.split('\t')) {
                // A closed output must not end the training.
                let _ = writeln!(self.out, "  {title:<10}  {text}");
            }
        }
    }

    fn line(&mut self, title: &str) {
        let line = self.take_line(title);
        self.last_line = Some(Instant::now());
        // A closed output must not end the training.
        let _ = writeln!(self.out, "{line}");
    }

    /// The means since the last line.
    fn take_line(&mut self, title: &str) -> String {
        let mut line = title.to_owned();
        for (name, mean) in self.metrics.drain(..) {
            if let Some(mean) = mean.get() {
                line += &format!("  {} {}", uncapitalized(&name), number(mean));
            }
        }
        line
    }
}

/// A metric's name inside a line: the initials of words in lower case, except abbreviations.
fn uncapitalized(name: &str) -> String {
    let word = |word: &str| {
        let mut rest = word.chars().skip(1).peekable();
        let is_word = rest.peek().is_some() && rest.all(char::is_lowercase);
        match is_word {
            true => word.to_lowercase(),
            false => word.to_owned(),
        }
    };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// About four significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

impl MetricsRendererTraining for PlainLines {
    fn update_train(&mut self, state: MetricState) {
        self.note(state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.note(state);
    }

    fn render_train(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        let update = item.iteration.unwrap_or(0);
        if let Some(reason) = self.skipped.take() {
            // A closed output must not end the training.
            let _ = writeln!(self.out, "update {update} skipped: {reason}");
        }
        let ends_round = item
            .progress
            .is_some_and(|p| p.items_processed >= p.items_total);
        let last_line = *self.last_line.get_or_insert_with(Instant::now);
        if update == 1
            || ends_round
            || update.is_multiple_of(LINE_EVERY)
            || last_line.elapsed() >= LINE_WITHIN
        {
            self.line(&format!("update {update}"));
        }
    }

    fn render_valid(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        if item
            .progress
            .is_some_and(|p| p.items_processed >= p.items_total)
        {
            self.line("validation");
            self.write_samples();
        }
    }
}

impl MetricsRendererEvaluation for PlainLines {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}

    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for PlainLines {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Statistics, TokenMean};
    use burn::data::dataloader::Progress;
    use burn::train::metric::{Metric, MetricMetadata, Numeric};

    #[test]
    fn names_are_those_of_a_line() {
        let names = [
            "Loss",
            "Token accuracy",
            "Learning Rate",
            "Target tokens/s",
            "BLEU",
            "chrF2",
        ];
        let expected = [
            "loss",
            "token accuracy",
            "learning rate",
            "target tokens/s",
            "BLEU",
            "chrF2",
        ];
        assert_eq!(names.map(uncapitalized), expected);
    }

    /// The means of a line are over all its tokens, independent of their batches.
    #[test]
    fn a_line_has_the_means_over_its_tokens() {
        let batches = [(9.0, 6.0, 1.0, 3.0), (2.0, 1.0, 5.0, 7.0)];
        let batches = batches.map(|(loss, nll, correct, tokens)| Statistics {
            loss,
            nll,
            correct,
            tokens,
        });
        let progress = Progress::new(1, 2);
        let metadata = MetricMetadata {
            progress: progress.clone(),
            global_progress: progress,
            iteration: None,
            lr: None,
        };
        let mut lines = PlainLines::default();
        let metrics = [
            TokenMean::loss(),
            TokenMean::perplexity(),
            TokenMean::accuracy(),
        ];
        for mut metric in metrics {
            let id = MetricId::new(metric.name());
            let definition = MetricDefinition::new(id.clone(), &metric);
            lines.register_metric(definition);
            for batch in &batches {
                let shown = metric.update(batch, &metadata);
                let entry = MetricEntry::new(id.clone(), shown);
                lines.note(MetricState::Numeric(entry, metric.value()));
            }
        }
        // (9 + 2) / 10, exp((6 + 1) / 10), 100 (1 + 5) / 10
        let expected = "validation  loss 1.1000  perplexity 2.0138  token accuracy 60.00";
        assert_eq!(lines.take_line("validation"), expected);
    }
}
