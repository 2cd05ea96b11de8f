//! The recorded values of a run, as points of curves.

use std::collections::BTreeSet;
use std::path::Path;

use clap::ValueEnum;
use transformer_train::progress::{LOG_FILE, RunLog, TrainingPoint};
use transformer_train::run::RunRecord;
use transformer_train::validation::Validation;

use super::axis::Axis;
use super::curves_picture::Stage;
use crate::commands::Result;

/// The x axis of the curves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// Updates
    Updates,
    /// Seconds of training, excluding validation and saving
    Seconds,
}

impl Over {
    /// The title of the axis.
    pub fn title(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::Seconds => "seconds of training",
        }
    }

    fn place(self, update: usize, seconds: f64) -> f64 {
        match self {
            Self::Updates => update as f64,
            Self::Seconds => seconds,
        }
    }
}

/// A quantity of a run that can be plotted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Number {
    Loss,
    Perplexity,
    Accuracy,
    /// Measured at validations, under this name.
    Measured(String),
    Rate,
    Tokens,
    Norm,
}

impl Number {
    /// The quantities with a fixed name in `--numbers`.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("loss", Self::Loss),
        ("perplexity", Self::Perplexity),
        ("accuracy", Self::Accuracy),
        ("rate", Self::Rate),
        ("tokens", Self::Tokens),
        ("norm", Self::Norm),
    ];

    /// The title of the panel.
    pub fn title(&self) -> &str {
        match self {
            Self::Loss => "loss, in nats per token",
            Self::Perplexity => "perplexity",
            Self::Accuracy => "token accuracy, in percent",
            Self::Measured(name) => name,
            Self::Rate => "learning rate",
            Self::Tokens => "target tokens trained on per second",
            Self::Norm => "norm of the gradients",
        }
    }

    /// Whether the y axis starts at zero.
    pub fn is_from_zero(&self) -> bool {
        matches!(self, Self::Rate | Self::Tokens)
    }
}

/// The recorded values of a run.
pub struct Run {
    /// The directory as given on the command line.
    pub name: String,
    points: Vec<TrainingPoint>,
    validations: Vec<Validation>,
    /// The validations of the averages of the last checkpoints, each made at an end of the run.
    averages: Vec<Validation>,
}

/// Points of x and y, in order.
type Curve = Vec<(f64, f64)>;

impl Run {
    /// Reads the log of a run, and the validations that the log lacks from the newest checkpoint.
    pub fn load(directory: &Path) -> Result<Self> {
        let name = directory.display().to_string();
        let log = RunLog::load(directory)?;
        let record = RunRecord::load(directory)?;
        if log.is_none() && record.is_none() {
            let problem = format!("not a training run: it has no {LOG_FILE} and no checkpoint");
            return Err(format!("{name}: {problem}").into());
        }
        let RunLog {
            points,
            mut validations,
            mut averages,
            ..
        } = log.unwrap_or_default();
        if let Some(record) = record {
            let logged = validations.last().map_or(0, |last| last.update);
            let recorded = record.validations.into_iter();
            validations.extend(recorded.filter(|v| v.update > logged));
            averages = record.averages;
        }
        let averages = averages.into_iter().map(|average| average.validation);
        if points.is_empty() && validations.is_empty() {
            return Err(format!("{name}: the run has not recorded anything yet").into());
        }
        Ok(Self {
            name,
            points,
            validations,
            averages: averages.collect(),
        })
    }

    /// The names of the metrics that were measured at validations.
    pub fn measured(&self) -> BTreeSet<&str> {
        let names = self.validations.iter().flat_map(|v| v.numbers.keys());
        names.map(String::as_str).collect()
    }

    /// The curves of a quantity, without empty ones.
    pub fn curves(&self, number: &Number, over: Over) -> Vec<(Stage, Curve)> {
        let validated = |number: &dyn Fn(&Validation) -> f64| {
            [&self.validations, &self.averages].map(|of| curve(of, over, number))
        };
        let none = || [Curve::new(), Curve::new()];
        let (training, [validation, average]) = match number {
            // Without a log, the run has the means of the training between two validations.
            Number::Loss if self.points.is_empty() => (
                curve(&self.validations, over, |v| v.train_loss),
                validated(&|v| v.valid_loss),
            ),
            Number::Tokens if self.points.is_empty() => (self.speed(over), none()),
            Number::Loss => (
                self.training(over, |p| p.loss),
                validated(&|v| v.valid_loss),
            ),
            Number::Perplexity => (
                self.training(over, |p| p.perplexity),
                validated(&|v| v.valid_nll.exp()),
            ),
            Number::Accuracy => (
                self.training(over, |p| p.accuracy),
                validated(&|v| v.valid_accuracy),
            ),
            Number::Measured(name) => (
                Curve::new(),
                validated(&|v| v.numbers.get(name).copied().unwrap_or(f64::NAN)),
            ),
            Number::Rate => (self.training(over, |p| p.learning_rate), none()),
            Number::Tokens => (self.training(over, |p| p.tokens_per_second), none()),
            Number::Norm => (self.training(over, |p| p.gradient_norm), none()),
        };
        let curves = [
            (Stage::Training, training),
            (Stage::Validation, validation),
            (Stage::Average, average),
        ];
        let curves = curves.into_iter();
        curves.filter(|(_, curve)| !curve.is_empty()).collect()
    }

    fn training(&self, over: Over, number: impl Fn(&TrainingPoint) -> f64) -> Curve {
        let points = self.points.iter();
        let points = points.map(|p| (over.place(p.update, p.seconds), number(p)));
        points.filter(has_place).collect()
    }

    /// Tokens per second between validations.
    fn speed(&self, over: Over) -> Curve {
        let mut before = 0.0;
        let points = self.validations.iter().map(|v| {
            let seconds = v.seconds - std::mem::replace(&mut before, v.seconds);
            let speed = v.train_tokens as f64 / seconds;
            (over.place(v.update, v.seconds), speed)
        });
        points.filter(has_place).collect()
    }
}

fn curve(validations: &[Validation], over: Over, number: impl Fn(&Validation) -> f64) -> Curve {
    let points = validations.iter();
    let points = points.map(|v| (over.place(v.update, v.seconds), number(v)));
    points.filter(has_place).collect()
}

/// Whether a point can be plotted: neither a NaN nor too large for an axis.
fn has_place(point: &(f64, f64)) -> bool {
    [point.0, point.1]
        .iter()
        .all(|number| number.abs() <= Axis::MOST)
}
