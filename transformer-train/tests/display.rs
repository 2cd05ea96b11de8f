//! A renderer of Burn's is given the numbers of each update and each validation.

mod support;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use transformer_instances as _;

use burn::train::LearnerSummary;
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::Transformer;
use transformer_train::validation::{
    HookError, Measurement, SampleOutput, ValidationContext, ValidationMetrics,
};
use transformer_train::{Trainer, TrainingConfig};

use support::run::{alone, pairs, tiny_config};

/// What a renderer is given, in order.
#[derive(Debug, PartialEq)]
enum Shown {
    Metric(String),
    Train(MetricId, Option<f64>),
    /// Of a loss.
    TrainText(String),
    Valid(MetricId, Option<f64>, String),
    /// Update, and progress in the interval and of the intervals.
    Update(usize, [usize; 4]),
    Validation(usize),
    End,
}

#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Vec<Shown>>>);

impl Recording {
    fn add(&self, shown: Shown) {
        self.0.lock().unwrap().push(shown);
    }
}

fn parts(state: MetricState) -> (MetricId, Option<f64>, String) {
    match state {
        MetricState::Generic(entry) => (entry.metric_id, None, entry.serialized_entry.formatted),
        MetricState::Numeric(entry, value) => {
            let NumericEntry::Value(value) = value else {
                panic!("an aggregated value");
            };
            (
                entry.metric_id,
                Some(value),
                entry.serialized_entry.formatted,
            )
        }
    }
}

impl MetricsRendererTraining for Recording {
    fn update_train(&mut self, state: MetricState) {
        let (found, value, text) = parts(state);
        if found == id("Loss") {
            self.add(Shown::TrainText(text));
        }
        self.add(Shown::Train(found, value));
    }

    fn update_valid(&mut self, state: MetricState) {
        let (id, value, text) = parts(state);
        self.add(Shown::Valid(id, value, text));
    }

    fn render_train(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        let (within, all) = (item.progress.unwrap(), item.global_progress);
        let progress = [
            within.items_processed,
            within.items_total,
            all.items_processed,
            all.items_total,
        ];
        self.add(Shown::Update(item.iteration.unwrap(), progress));
    }

    fn render_valid(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        self.add(Shown::Validation(item.iteration.unwrap()));
    }

    fn on_train_end(
        &mut self,
        _: Option<LearnerSummary>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.add(Shown::End);
        Ok(())
    }
}

impl MetricsRendererEvaluation for Recording {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}

    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for Recording {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.add(Shown::Metric(definition.name));
    }
}

fn id(name: &str) -> MetricId {
    MetricId::new(Arc::new(name.to_owned()))
}

struct WithSample;

impl ValidationMetrics<NdArray, Transformer<NdArray>> for WithSample {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn samples(&self) -> usize {
        1
    }

    fn measure(
        &mut self,
        _: ValidationContext<'_, Transformer<NdArray>>,
    ) -> Result<Measurement, HookError> {
        let mut measured = Measurement::new(Vec::new());
        measured.samples.push(SampleOutput {
            source: "a".into(),
            hypothesis: "b".into(),
            reference: "c".into(),
        });
        Ok(measured)
    }
}

#[test]
fn a_renderer_shows_every_update_every_validation_and_no_nan() {
    let _alone = alone();
    let recording = Recording::default();
    let config = TrainingConfig {
        batch_tokens: 20,
        updates: 5,
        warmup: 4,
        validate_every: 3,
        ..TrainingConfig::default()
    };
    let model: Transformer<Autodiff<NdArray>> = tiny_config().init(3, &Default::default()).unwrap();
    let trained = Trainer::new(model, config)
        .renderer(recording.clone())
        .validate_with(WithSample)
        .validate_with_fn(["Score"], |at| {
            // No number at the first validation.
            Ok(ControlFlow::Continue([match at.update {
                3 => f64::NAN,
                _ => 7.5,
            }]))
        })
        .train(pairs(), pairs())
        .unwrap();

    let shown = recording.0.lock().unwrap();
    let first = shown
        .iter()
        .position(|shown| !matches!(shown, Shown::Metric(_)));
    let (metrics, shown) = shown.split_at(first.unwrap());
    for (metric, known) in [
        ("Loss", true),
        ("Score", true),
        ("Sample 1", true),
        ("x", false),
    ] {
        let is_there = metrics.contains(&Shown::Metric(metric.to_owned()));
        assert_eq!(is_there, known, "{metric}");
    }
    for shown in shown {
        if let Shown::Train(_, Some(value)) | Shown::Valid(_, Some(value), _) = shown {
            assert!(value.is_finite(), "{shown:?}");
        }
    }
    let updates = shown.iter().filter_map(|shown| match shown {
        Shown::Update(update, progress) => Some((*update, *progress)),
        _ => None,
    });
    let expected = [
        (1, [1, 3, 1, 2]),
        (2, [2, 3, 1, 2]),
        (3, [3, 3, 1, 2]),
        (4, [1, 2, 2, 2]),
        (5, [2, 2, 2, 2]),
    ];
    assert!(updates.eq(expected), "{shown:?}");
    let losses = |of: fn(&Shown) -> Option<(&MetricId, f64)>| -> Vec<f64> {
        let all = shown.iter().filter_map(of);
        let losses = all.filter(|(found, _)| **found == id("Loss"));
        losses.map(|(_, loss)| loss).collect()
    };
    let trains = losses(|shown| match shown {
        Shown::Train(id, Some(loss)) => Some((id, *loss)),
        _ => None,
    });
    assert_eq!(trains.len(), 5);
    let valids = losses(|shown| match shown {
        Shown::Valid(id, Some(loss), _) => Some((id, *loss)),
        _ => None,
    });
    let expected: Vec<_> = trained.validations.iter().map(|v| v.valid_loss).collect();
    assert_eq!(valids, expected);
    let scores = shown.iter().filter(|shown| {
        matches!(shown, Shown::Valid(found, Some(value), _) if *found == id("Score") && *value == 7.5)
    });
    assert_eq!(scores.count(), 1);
    // The mean of the interval: of its first update, that update's.
    let Some(Shown::TrainText(text)) = shown
        .iter()
        .find(|shown| matches!(shown, Shown::TrainText(_)))
    else {
        panic!("no text of a loss");
    };
    let (mean, own) = text
        .strip_prefix("mean ")
        .unwrap()
        .split_once(" - update ")
        .unwrap();
    assert_eq!(mean, own);
    let sample = Shown::Valid(id("Sample 1"), None, "a → b (reference: c)".into());
    assert_eq!(shown.iter().filter(|shown| **shown == sample).count(), 2);
    let validations = shown.iter().filter_map(|shown| match shown {
        Shown::Validation(update) => Some(*update),
        _ => None,
    });
    assert!(validations.eq([3, 5]));
    assert_eq!(shown.last(), Some(&Shown::End));
}
