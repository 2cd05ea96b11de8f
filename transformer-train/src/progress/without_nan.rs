//! Keeps NaN from displays.

use std::error::Error;

use burn::train::LearnerSummary;
use burn::train::metric::MetricDefinition;
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};

/// Passes on all values but NaN, which cannot be plotted: a number of a whole validation is NaN except
/// with its last batch.
pub(crate) struct WithoutNaN(pub Box<dyn MetricsRenderer>);

fn is_number(state: &MetricState) -> bool {
    match state {
        MetricState::Generic(_) => true,
        MetricState::Numeric(_, value) => value.current().is_finite(),
    }
}

impl MetricsRendererTraining for WithoutNaN {
    fn update_train(&mut self, state: MetricState) {
        if is_number(&state) {
            self.0.update_train(state);
        }
    }

    fn update_valid(&mut self, state: MetricState) {
        if is_number(&state) {
            self.0.update_valid(state);
        }
    }

    fn render_train(&mut self, item: TrainingProgress, indicators: Vec<ProgressType>) {
        self.0.render_train(item, indicators);
    }

    fn render_valid(&mut self, item: TrainingProgress, indicators: Vec<ProgressType>) {
        self.0.render_valid(item, indicators);
    }

    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        self.0.on_train_end(summary)
    }
}

impl MetricsRendererEvaluation for WithoutNaN {
    fn update_test(&mut self, name: EvaluationName, state: MetricState) {
        self.0.update_test(name, state);
    }

    fn render_test(&mut self, item: EvaluationProgress, indicators: Vec<ProgressType>) {
        self.0.render_test(item, indicators);
    }

    fn on_test_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        self.0.on_test_end(summary)
    }
}

impl MetricsRenderer for WithoutNaN {
    fn manual_close(&mut self) {
        self.0.manual_close();
    }

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.0.register_metric(definition);
    }
}
