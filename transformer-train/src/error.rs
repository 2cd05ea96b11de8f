//! Errors of training.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};
use transformer_core::formats::ModelError;
use transformer_core::nn::{ConfigError, ProductPrecision};
#[cfg(feature = "text")]
use transformer_core::text::TextError;

use crate::data::{BatchError, CorpusError, ExampleProblem};

/// Why a training run cannot start or continue.
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
        expected: ConfigRule,
    },
    /// The model's configuration contradicts itself.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// The model does not support [`TrainingConfig::precision`](crate::TrainingConfig::precision)
    /// ([`Objective::prepare`](crate::objective::Objective::prepare)).
    #[error("`precision` is {precision}, but this model computes in f32 only")]
    ModelPrecision {
        /// The requested precision.
        precision: ProductPrecision,
    },
    /// The backend does not support [`TrainingConfig::precision`](crate::TrainingConfig::precision).
    #[error(
        "`precision` is {precision}, but {backend} does not have it; the features `flex`, `ndarray` and `tch` add it to these backends"
    )]
    BackendPrecision {
        /// The requested precision.
        precision: ProductPrecision,
        /// The backend's name.
        backend: String,
    },
    /// The learning rate has no peak: [`TrainingConfig::peak_rate`](crate::TrainingConfig::peak_rate) is absent,
    /// and the model has no width ([`Objective::width`](crate::objective::Objective::width)) to compute the
    /// paper's peak from.
    #[error("`peak_rate` must be given: the paper's peak needs a model with a width")]
    NoPeak,
    /// The training or validation examples do not fit the batches.
    #[error("{part} {name}s: {source}")]
    Batches {
        /// `training`, `validation` or `evaluation`.
        part: &'static str,
        /// What an example is called.
        name: &'static str,
        /// The problem.
        source: BatchError,
    },
    /// The model cannot learn from an example.
    #[error("{part} {name}s: {name} {index} {problem}")]
    Example {
        /// `training`, `validation` or `evaluation`.
        part: &'static str,
        /// What an example is called.
        name: &'static str,
        /// Position of the example, from 0.
        index: usize,
        /// The problem.
        problem: ExampleProblem,
    },
    /// An example could not be read.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// Two validation metrics have the same name.
    #[error("two validation metrics are named `{name}`; names must be unique")]
    SameName {
        /// The name.
        name: String,
    },
    /// Validations are to be compared by a metric that they do not have.
    #[error("`best_by` is `{name}`, but the validation metrics are {}", named.join(", "))]
    NoSuchNumber {
        /// The requested name.
        name: String,
        /// The available names.
        named: Vec<String>,
    },
    /// The directory already holds a model or checkpoints.
    #[error("{} already holds a model; resume it, or choose another directory", .0.display())]
    Occupied(PathBuf),
    /// The run to resume has a model, but its checkpoints were removed.
    #[error(
        "{} holds a model, but no checkpoints to resume from; training it again from the beginning needs another directory",
        .0.display()
    )]
    NoCheckpoints(PathBuf),
    /// Another run is training in the directory.
    #[error(
        "{} is in use by another training run; end that one first, or choose another directory",
        .0.display()
    )]
    InUse(PathBuf),
    /// The run's directory was removed, renamed or replaced while the run trained.
    #[error("{}: {}", path.display(), lost(*saved, renamed_to.as_deref()))]
    DirectoryLost {
        /// The file that locks the directory.
        path: PathBuf,
        /// The update of the newest checkpoint; `None` if there is none.
        saved: Option<usize>,
        /// The directory's new name, if known.
        renamed_to: Option<PathBuf>,
    },
    /// The checkpoint was made with other settings.
    #[error(
        "{}: made with `{key}` {}, not {}",
        path.display(),
        or_absent(before.as_deref()),
        or_absent(now.as_deref())
    )]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// The key of the setting that differs.
        key: String,
        /// Its value in the checkpoint; `None` if absent.
        before: Option<String>,
        /// Its value now; `None` if absent.
        now: Option<String>,
    },
    /// The checkpoint was made with other frozen parameters ([`freeze`](crate::optim::freeze)).
    #[error(
        "{}: made with `{parameter}` {}; freeze the same parameters again",
        path.display(),
        if *is_frozen { "trained, not frozen" } else { "frozen, not trained" }
    )]
    OtherFrozen {
        /// The checkpoint.
        path: PathBuf,
        /// The first parameter that differs.
        parameter: String,
        /// Whether it is frozen now.
        is_frozen: bool,
    },
    /// The checkpoint was made with other training examples.
    #[error("{}: trained on {before}, not on {now}", path.display())]
    OtherData {
        /// The checkpoint.
        path: PathBuf,
        /// The examples of the checkpoint, by number and checksum.
        before: String,
        /// The examples given now.
        now: String,
    },
    /// The run to be resumed was validated on other examples, so that earlier and later validations would not be
    /// comparable.
    #[error(
        "{}: validated on {before}, not on {now}; validate on the same examples, or start a new run from this model \
         in another directory",
        path.display()
    )]
    OtherValidation {
        /// The checkpoint.
        path: PathBuf,
        /// The examples of the checkpoint, by number and checksum.
        before: String,
        /// The examples given now.
        now: String,
    },
    /// The newest checkpoint of a run is damaged, and possibly older ones, too.
    #[error("{source}; {}", way_on(damaged, whole.as_deref()))]
    DamagedCheckpoint {
        /// The damage to the newest one.
        source: Box<TrainError>,
        /// The directories of the damaged checkpoints, the newest first.
        damaged: Vec<PathBuf>,
        /// The newest intact checkpoint, from which the run can be resumed; `None` if there is none.
        whole: Option<PathBuf>,
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
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A model directory could not be read or written.
    #[error(transparent)]
    Directory(#[from] ModelError),
    /// The last checkpoints could not be averaged. The run can be resumed to average them.
    #[error(transparent)]
    Average(Box<AverageError>),
    /// The tokenizers do not fit the model, or could not be read or saved beside it.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Tokenizer(#[from] TextError),
    /// The run to be resumed has other tokenizers.
    #[cfg(feature = "text")]
    #[error("{}: the given tokenizers differ from the run's; load them from this directory", .0.display())]
    OtherTokenizers(PathBuf),
    /// [`TrainingConfig::skip_limit`](crate::TrainingConfig::skip_limit) consecutive updates were skipped, because
    /// their loss or gradients were not finite.
    #[error(
        "consecutive updates skipped: {skipped}; the last, update {update}, has loss {loss} and gradient norm \
         {gradient_norm}; a lower learning rate or a longer warm-up may help"
    )]
    Diverged {
        /// Number of consecutive skipped updates.
        skipped: usize,
        /// The last of them, from 1.
        update: usize,
        /// Its label-smoothed loss, in nats per token.
        loss: f64,
        /// The Euclidean norm of all its gradients.
        gradient_norm: f64,
    },
    /// The loss on the validation examples is NaN or infinite.
    #[error(
        "the validation loss after update {update} is {loss}; a lower learning rate or a longer warm-up may help"
    )]
    ValidationLoss {
        /// Number of updates made.
        update: usize,
        /// The loss, in nats per token.
        loss: f64,
    },
    /// Every parameter of the model is frozen.
    #[error("all {parameters} parameters are frozen; at least one must be trained")]
    AllFrozen {
        /// The number of parameters.
        parameters: usize,
    },
    /// The function of [`Trainer::on_start`](crate::Trainer::on_start) failed.
    #[error("{source}")]
    Start {
        /// The error that it returned.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The metrics of [`Trainer::validate_with`](crate::Trainer::validate_with) cannot measure the model.
    #[error("validation: {source}")]
    Metrics {
        /// The problem.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A validation hook failed: [`Trainer::validate_with`](crate::Trainer::validate_with) or
    /// [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn).
    #[error("validation after update {update}: {source}")]
    Validation {
        /// Number of updates made.
        update: usize,
        /// The error that it returned.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A process has a different run from the other processes that train the model
    /// ([`Ranks`](crate::ranks::Ranks)).
    #[error(
        "rank {rank} of {size} has different {what} from rank 0; all ranks must use the same settings and files"
    )]
    OtherProcess {
        /// The first rank that differs.
        rank: usize,
        /// The number of processes.
        size: usize,
        /// What differs, such as `training examples`.
        what: &'static str,
    },
    /// A process has computed different weights from the other processes that train the model
    /// ([`Ranks`](crate::ranks::Ranks)).
    #[error(
        "after update {update}, rank {rank} of {size} has different weights or moments from rank 0: its processor, \
         backend or build rounds differently; use machines of one kind"
    )]
    OtherWeights {
        /// Number of updates made.
        update: usize,
        /// The first rank that differs.
        rank: usize,
        /// The number of processes.
        size: usize,
    },
    /// An observer of the run ([`Trainer::observer`](crate::Trainer::observer)), such as a log, could not start.
    #[error("the run cannot be logged: {source}")]
    Observer {
        /// The error that it returned.
        source: ObserverError,
    },
}

/// The error of an observer.
pub type ObserverError = Box<dyn Error + Send + Sync>;

impl TrainError {
    /// An input or output error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// What happened to the directory of a run, and to its checkpoints.
fn lost(saved: Option<usize>, renamed_to: Option<&Path>) -> String {
    let not_written = match saved {
        Some(update) => format!("no checkpoint after update {update} was written"),
        None => "no checkpoint was written".into(),
    };
    match renamed_to {
        Some(directory) => {
            let directory = directory.display();
            format!(
                "is missing: the run's directory was renamed to {directory} during training; {not_written}, and the \
                 run can be resumed in {directory}"
            )
        }
        None => format!(
            "is missing, or belongs to another run: the run's directory, or this file in it, was removed or replaced \
             during training; {not_written}"
        ),
    }
}

/// How to continue a run whose newest checkpoints are damaged.
fn way_on(damaged: &[PathBuf], whole: Option<&Path>) -> String {
    let Some(whole) = whole else {
        return "no older checkpoint is intact; start a new run in another directory".into();
    };
    let damaged: Vec<_> = damaged
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    format!(
        "to resume from the older {}, remove {}",
        whole.display(),
        damaged.join(" and ")
    )
}

impl From<AverageError> for TrainError {
    fn from(error: AverageError) -> Self {
        Self::Average(Box::new(error))
    }
}

/// Checks that the configuration `before`, read from a checkpoint at `path`, equals `now`.
///
/// # Errors
/// [`TrainError::OtherRun`], which names the first key that differs and both values.
pub fn same_config<T: Serialize>(path: &Path, before: &T, now: &T) -> Result<(), TrainError> {
    let fields = |config: &T| match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => Map::from_iter([("configuration".to_owned(), other)]),
        Err(error) => Map::from_iter([("configuration".to_owned(), error.to_string().into())]),
    };
    match first_difference(&fields(before), &fields(now)) {
        None => Ok(()),
        Some(Difference { key, before, now }) => Err(TrainError::OtherRun {
            path: path.to_owned(),
            key,
            before,
            now,
        }),
    }
}

/// A key in which two configurations differ, with its value in each.
pub(crate) struct Difference {
    pub key: String,
    pub before: Option<String>,
    pub now: Option<String>,
}

/// The first key in which two configurations differ.
pub(crate) fn first_difference(
    before: &Map<String, Value>,
    now: &Map<String, Value>,
) -> Option<Difference> {
    let differs = |key: &&String| before.get(*key) != now.get(*key);
    let key = before.keys().chain(now.keys()).find(differs)?;
    Some(Difference {
        key: key.clone(),
        before: before.get(key).map(Value::to_string),
        now: now.get(key).map(Value::to_string),
    })
}

/// A value as text, or `absent`.
pub(crate) fn or_absent(value: Option<&str>) -> &str {
    value.unwrap_or("absent")
}

/// Why models cannot be averaged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AverageError {
    /// No directory was given.
    #[error("no model to average")]
    NoModel,
    /// A run has fewer checkpoints than requested.
    #[error(
        "{}: has {found} checkpoints, fewer than {asked}; a larger `keep_checkpoints` keeps more",
        run.display()
    )]
    TooFewCheckpoints {
        /// The run's directory.
        run: PathBuf,
        /// Number of its newest checkpoints. Older ones, kept for their validations, do not count.
        found: usize,
        /// The requested number.
        asked: usize,
    },
    /// The output directory already holds a model or checkpoints.
    #[error("{} already holds a model; choose another directory", .0.display())]
    Occupied(PathBuf),
    /// A key of a configuration, or the type or shape of a tensor, differs from the first model.
    #[error("{}: `{name}` is {found}, but {expected} in {}", path.display(), first.display())]
    Different {
        /// The file.
        path: PathBuf,
        /// The key or the tensor.
        name: String,
        /// Its value in the file, or its type and shape; `absent` if missing.
        found: String,
        /// The first model's file.
        first: PathBuf,
        /// Its value there, or its type and shape.
        expected: String,
    },
    /// A tensor whose values cannot be averaged, such as a table of indices, differs between the models.
    #[error(
        "{}: `{name}` has other values than in {}; values of type {dtype} are not averaged",
        path.display(),
        first.display()
    )]
    NotAveraged {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The type of its values.
        dtype: String,
        /// The first model's file.
        first: PathBuf,
    },
    /// The models have different tokenizers.
    #[error("{}: not the tokenizer of {}", path.display(), first.display())]
    OtherTokenizer {
        /// The directory with a different tokenizer.
        path: PathBuf,
        /// The first model's directory.
        first: PathBuf,
    },
    /// A file could not be read or written, or is damaged.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error, or the damage.
        source: std::io::Error,
    },
    /// The weights or the configuration of a model are missing or damaged.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl AverageError {
    /// An input or output error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// The rule for the value of a key of the training configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigRule {
    /// At least 1.
    AtLeastOne,
    /// At least this number of processes that train together ([`Ranks`](crate::ranks::Ranks)).
    AtLeastProcesses(usize),
    /// Positive and finite.
    PositiveAndFinite,
    /// In [0, 1).
    BelowOne,
    /// In (0, 1).
    BetweenZeroAndOne,
    /// 1, because the given value of this other key replaces it.
    OneWhereGiven(&'static str),
    /// More than the value of this key, after which the learning rate decays to zero.
    Above(&'static str),
    /// At most the value of this key.
    AtMost(&'static str),
}

impl ConfigRule {
    /// The rule in words, with `name` applied to each key: for users who know the keys by other names.
    ///
    /// ```
    /// use transformer_train::run::ConfigRule;
    ///
    /// let rule = ConfigRule::AtMost("keep_checkpoints");
    /// assert_eq!(rule.to_string(), "at most `keep_checkpoints`");
    /// assert_eq!(rule.with_names(|_| "--keep"), "at most `--keep`");
    /// ```
    pub fn with_names(self, name: impl Fn(&'static str) -> &'static str) -> String {
        match self {
            Self::AtLeastOne => "at least 1".into(),
            Self::AtLeastProcesses(size) => format!("at least {size}, the number of processes"),
            Self::PositiveAndFinite => "positive and finite".into(),
            Self::BelowOne => "in [0, 1)".into(),
            Self::BetweenZeroAndOne => "in (0, 1)".into(),
            Self::OneWhereGiven(key) => format!("1 if `{}` is given", name(key)),
            Self::Above(key) => format!(
                "more than `{}` if the learning rate decays to zero",
                name(key)
            ),
            Self::AtMost(key) => format!("at most `{}`", name(key)),
        }
    }
}

impl fmt::Display for ConfigRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_names(|key| key))
    }
}
