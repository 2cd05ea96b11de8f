//! Errors of training.

use std::path::{Path, PathBuf};

use serde::Serialize;
#[cfg(feature = "text")]
use transformer_core::TextError;
use transformer_core::{ConfigError, ModelError};

use crate::data::{BatchError, ExampleProblem};

/// A training run that cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A value of the training configuration is out of range.
    #[error("`{key}` is {value}; it must be {expected}")]
    Config {
        /// The configuration key.
        key: &'static str,
        /// The value found.
        value: String,
        /// The rule that it breaks.
        expected: &'static str,
    },
    /// The model's configuration contradicts itself.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// The training or validation examples do not fit the batches.
    #[error("{part} {name}s: {source}")]
    Batches {
        /// `training`, `validation` or `evaluation`.
        part: &'static str,
        /// The noun for an example.
        name: &'static str,
        /// The problem.
        source: BatchError,
    },
    /// The model cannot learn from an example.
    #[error("{part} {name}s: {name} {index} {problem}")]
    Example {
        /// `training`, `validation` or `evaluation`.
        part: &'static str,
        /// The noun for an example.
        name: &'static str,
        /// Which example, from 0.
        index: usize,
        /// The problem.
        problem: ExampleProblem,
    },
    /// Two numbers that are shown have one name.
    #[error("`{name}` names two numbers of a validation; each needs a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// The directory already holds a model or checkpoints.
    #[error("{} already holds a model; resume it, or choose another directory", .0.display())]
    Occupied(PathBuf),
    /// The checkpoint was made with other settings or other data.
    #[error("{}: made with {what} {before}, not {now}", path.display())]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// The setting that differs.
        what: String,
        /// Its value in the checkpoint.
        before: String,
        /// Its value now.
        now: String,
    },
    /// A checkpoint's file is damaged.
    #[error("{}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A model directory could not be read or written.
    #[error(transparent)]
    Directory(#[from] ModelError),
    /// The tokenizers do not fit the model, or could not be read or saved beside it.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Tokenizer(#[from] TextError),
    /// The run to be resumed has other tokenizers than those given.
    #[cfg(feature = "text")]
    #[error("{}: the run's tokenizers are not those given; load them from there", .0.display())]
    OtherTokenizers(PathBuf),
    /// As many updates in a row as [`TrainingConfig::skip_limit`](crate::TrainingConfig::skip_limit) allows
    /// were skipped, because their loss or gradients are not finite.
    #[error(
        "updates skipped in a row: {skipped}; the last, update {update}, has loss {loss} and gradient norm \
         {gradient_norm}; a lower learning rate or a longer warm-up may help"
    )]
    Diverged {
        /// Updates skipped in a row.
        skipped: usize,
        /// The last of them, from 1.
        update: usize,
        /// Its label-smoothed loss, in nats per token.
        loss: f64,
        /// The Euclidean norm of its gradients together.
        gradient_norm: f64,
    },
    /// The loss on the validation examples is NaN or infinite.
    #[error(
        "the validation loss after update {update} is {loss}; a lower learning rate or a longer warm-up may help"
    )]
    ValidationLoss {
        /// The updates made.
        update: usize,
        /// The loss, in nats per token.
        loss: f64,
    },
    /// The function of [`Trainer::on_validation`](crate::Trainer::on_validation) failed.
    #[error("validation after update {update}: {source}")]
    Validation {
        /// The updates made.
        update: usize,
        /// The error that it returned.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl TrainError {
    /// An input or output error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Checks that the configuration `before`, read from a checkpoint at `path`, equals `now`.
///
/// # Errors
/// [`TrainError::OtherRun`], which names the first key that differs and both values.
pub fn same_config<T: Serialize>(path: &Path, before: &T, now: &T) -> Result<(), TrainError> {
    let fields = |config: &T| match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (before, now) = (fields(before), fields(now));
    let differs = |key: &&String| before.get(*key) != now.get(*key);
    let Some(key) = before.keys().chain(now.keys()).find(differs) else {
        return Ok(());
    };
    let show = |value: Option<&serde_json::Value>| value.map_or("absent".into(), |v| v.to_string());
    Err(TrainError::OtherRun {
        path: path.to_owned(),
        what: format!("`{key}`"),
        before: show(before.get(key)),
        now: show(now.get(key)),
    })
}
