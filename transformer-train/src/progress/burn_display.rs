//! Burn's displays of a run: its TUI, or a renderer of the user's.

use std::iter;
use std::sync::Arc;

use burn::data::dataloader::Progress;
use burn::train::metric::{
    MetricAttributes, MetricDefinition, MetricEntry, MetricId, NumericAttributes, NumericEntry,
    SerializedEntry,
};
use burn::train::renderer::{MetricState, MetricsRenderer, ProgressType, TrainingProgress};

use crate::error::ObserverError;
use crate::progress::observer::{RunObserver, RunStart, TrainingPoint};
use crate::progress::plain_lines::number;
#[cfg(feature = "tui")]
use crate::progress::terminal::let_ctrl_c_through;
use crate::validation::{AverageOutcome, SampleOutput, Validation};

const LOSS: &str = "Loss";
const PERPLEXITY: &str = "Perplexity";
const ACCURACY: &str = "Token accuracy";
const SPEED: &str = "Target tokens/s";
const RATE: &str = "Learning Rate";
const NORM: &str = "Gradient norm";
const SKIPPED: &str = "Skipped updates";

/// The names that a display uses, with this number of sample outputs, besides the validation metrics.
pub(crate) fn displayed_names(samples: usize) -> impl Iterator<Item = String> {
    let own = [LOSS, PERPLEXITY, ACCURACY, SPEED, RATE, NORM, SKIPPED];
    own.map(str::to_owned)
        .into_iter()
        .chain((0..samples).map(sample_name))
}

fn sample_name(index: usize) -> String {
    format!("Sample {}", index + 1)
}

/// Passes the metrics of each update and each validation to a Burn renderer, except values that are not finite. A
/// renderer's epoch is the interval between two validations.
pub(crate) struct BurnDisplay {
    renderer: Box<dyn MetricsRenderer>,
    /// The names of the validation metrics.
    numbers: Vec<String>,
    /// Number of sample outputs per validation.
    samples: usize,
    /// Set when the run starts.
    updates: usize,
    validate_every: usize,
}

impl BurnDisplay {
    pub fn new(renderer: Box<dyn MetricsRenderer>, numbers: Vec<String>, samples: usize) -> Self {
        Self {
            renderer,
            numbers,
            samples,
            updates: 0,
            validate_every: 1,
        }
    }

    fn register(&mut self, name: &str, attributes: MetricAttributes) {
        self.renderer.register_metric(MetricDefinition {
            metric_id: id(name),
            name: name.to_owned(),
            description: None,
            attributes,
        });
    }

    /// Progress within the interval of an update, and over the intervals.
    fn progress(&self, update: usize) -> TrainingProgress {
        let done = update.saturating_sub(1);
        let interval = done / self.validate_every;
        let left = self.updates.saturating_sub(interval * self.validate_every);
        let in_interval = self.validate_every.min(left).max(1);
        TrainingProgress {
            progress: Some(Progress::new(done % self.validate_every + 1, in_interval)),
            global_progress: Progress::new(
                interval + 1,
                self.updates.div_ceil(self.validate_every),
            ),
            iteration: Some(update),
        }
    }

    fn train(&mut self, state: Option<MetricState>) {
        if let Some(state) = state {
            self.renderer.update_train(state);
        }
    }

    fn show_validation(&mut self, validation: &Validation) {
        let own = [LOSS, PERPLEXITY, ACCURACY].map(Some).into_iter();
        for ((name, value), own) in validation.all_numbers().zip(own.chain(iter::repeat(None))) {
            let name = own.unwrap_or(name);
            if let Some(state) = numeric(name, value, number(value)) {
                self.renderer.update_valid(state);
            }
        }
        let progress = self.progress(validation.update);
        let indicators = indicators(&progress);
        self.renderer.render_valid(progress, indicators);
    }
}

impl RunObserver for BurnDisplay {
    fn on_start(&mut self, start: &RunStart<'_>) -> Result<(), ObserverError> {
        self.updates = start.config.updates;
        self.validate_every = start.config.validate_every;
        let better = |higher_is_better| {
            MetricAttributes::Numeric(NumericAttributes {
                unit: None,
                higher_is_better,
            })
        };
        for name in [ACCURACY, SPEED] {
            self.register(name, better(true));
        }
        for name in [LOSS, PERPLEXITY, RATE, NORM] {
            self.register(name, better(false));
        }
        for name in self.numbers.clone() {
            self.register(&name, NumericAttributes::default().into());
        }
        self.register(SKIPPED, MetricAttributes::None);
        for index in 0..self.samples {
            self.register(&sample_name(index), MetricAttributes::None);
        }
        Ok(())
    }

    fn on_update(
        &mut self,
        update: &TrainingPoint,
        interval: &TrainingPoint,
    ) -> Result<(), ObserverError> {
        #[cfg(feature = "tui")]
        let_ctrl_c_through();
        let numbers = [
            (LOSS, update.loss, interval.loss),
            (PERPLEXITY, update.perplexity, interval.perplexity),
            (ACCURACY, update.accuracy, interval.accuracy),
            (SPEED, update.tokens_per_second, interval.tokens_per_second),
            (NORM, update.gradient_norm, interval.gradient_norm),
        ];
        for (name, own, mean) in numbers {
            let shown = format!("mean {} - update {}", number(mean), number(own));
            self.train(numeric(name, own, shown));
        }
        let rate = update.learning_rate;
        self.train(numeric(RATE, rate, number(rate)));
        let skipped = update.skipped.to_string();
        self.renderer
            .update_train(text(SKIPPED, skipped.clone(), skipped));
        let progress = self.progress(update.update);
        let indicators = indicators(&progress);
        self.renderer.render_train(progress, indicators);
        Ok(())
    }

    fn on_validation(&mut self, validation: &Validation) -> Result<(), ObserverError> {
        self.show_validation(validation);
        Ok(())
    }

    fn on_samples(&mut self, samples: &[SampleOutput]) -> Result<(), ObserverError> {
        for (index, sample) in samples.iter().enumerate() {
            let fields = [&sample.source, &sample.hypothesis, &sample.reference];
            let fields = fields.map(|field| field.replace('\t', " "));
            let name = sample_name(index);
            self.renderer
                .update_valid(text(&name, sample.to_string(), fields.join("\t")));
        }
        Ok(())
    }

    fn on_average(&mut self, average: &AverageOutcome) -> Result<(), ObserverError> {
        self.show_validation(&average.validation);
        Ok(())
    }

    fn on_end(&mut self) -> Result<(), ObserverError> {
        let ended = self.renderer.on_train_end(None);
        ended.map_err(|error| error.to_string().into())
    }
}

fn id(name: &str) -> MetricId {
    MetricId::new(Arc::new(name.to_owned()))
}

fn text(name: &str, shown: String, saved: String) -> MetricState {
    let entry = SerializedEntry::new(shown, saved);
    MetricState::Generic(MetricEntry::new(id(name), entry))
}

/// A value with its text, if it can be plotted.
fn numeric(name: &str, value: f64, shown: String) -> Option<MetricState> {
    let entry = MetricEntry::new(id(name), SerializedEntry::new(shown, value.to_string()));
    let state = MetricState::Numeric(entry, NumericEntry::Value(value));
    value.is_finite().then_some(state)
}

/// The progress lines for a renderer.
fn indicators(progress: &TrainingProgress) -> Vec<ProgressType> {
    let detailed = |tag: &str, progress: &Progress| ProgressType::Detailed {
        tag: tag.to_owned(),
        progress: progress.clone(),
    };
    let interval = detailed("Interval", &progress.global_progress);
    let update = progress.iteration.map(|value| ProgressType::Value {
        tag: "Update".to_owned(),
        value,
    });
    let within = progress.progress.as_ref();
    let within = within.map(|progress| detailed("In interval", progress));
    [Some(interval), update, within]
        .into_iter()
        .flatten()
        .collect()
}
