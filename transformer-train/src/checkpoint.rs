//! Checkpoints: written whole or not at all, and resumed to the same next update.
//!
//! ```text
//! DIR/config.json, model.safetensors          the model of the lowest validation loss
//! DIR/checkpoints/update-00000500/
//!     config.json, model.safetensors          the model after update 500
//!     optimizer.mpk                           Adam's moments
//!     run.json                                settings, data, validations so far
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::{AutodiffModule, Module, ModuleMapper, Param, ParamId};
use burn::optim::Optimizer;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use flate2::Crc;
use serde::{Deserialize, Serialize};
use transformer_core::{
    CONFIG_FILE, Transformer, TransformerConfig, WEIGHTS_FILE, replace_file_with,
};

use crate::batch::TokenizedPair;
use crate::config::TrainingConfig;
use crate::error::TrainError;
use crate::learner::TrainingModel;
use crate::metrics::Statistics;
use crate::optimizer::PaperAdam;

const CHECKPOINTS: &str = "checkpoints";
const OPTIMIZER_FILE: &str = "optimizer.mpk";
const RUN_FILE: &str = "run.json";
const PREFIX: &str = "update-";

/// One validation, and the training since the one before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Updates made.
    pub update: usize,
    /// Seconds spent training, validation and saving left out.
    pub seconds: f64,
    /// Target tokens trained on since the last validation.
    pub train_tokens: u64,
    /// Label-smoothed training loss since the last validation, in nats per token.
    pub train_loss: f64,
    /// Label-smoothed validation loss, in nats per token.
    pub valid_loss: f64,
    /// Negative log-likelihood on validation, in nats per token.
    pub valid_nll: f64,
    /// Share of the validation labels that were the model's first choice, in percent.
    pub valid_accuracy: f64,
}

impl Validation {
    pub(crate) fn new(update: usize, seconds: f64, train: &Statistics, valid: &Statistics) -> Self {
        Self {
            update,
            seconds,
            train_tokens: train.tokens as u64,
            train_loss: train.mean_loss(),
            valid_loss: valid.mean_loss(),
            valid_nll: valid.mean_nll(),
            valid_accuracy: valid.accuracy(),
        }
    }
}

/// Where a run stands, and what it must not change when it is resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub update: usize,
    pub seconds: f64,
    pub config: TrainingConfig,
    pub pairs: usize,
    pub pairs_checksum: u32,
    pub validations: Vec<Validation>,
    /// What has been trained on since the last of them.
    pub since_validation: Statistics,
}

impl RunState {
    pub fn new(config: &TrainingConfig, pairs: &[TokenizedPair]) -> Self {
        let mut checksum = Crc::new();
        for pair in pairs {
            for side in [&pair.source, &pair.target] {
                checksum.update(&(side.len() as u64).to_le_bytes());
                for token in side {
                    checksum.update(&token.to_le_bytes());
                }
            }
        }
        Self {
            update: 0,
            seconds: 0.0,
            config: config.clone(),
            pairs: pairs.len(),
            pairs_checksum: checksum.sum(),
            validations: Vec::new(),
            since_validation: Statistics::default(),
        }
    }

    /// The update of the last validation.
    pub fn validated_update(&self) -> usize {
        self.validations.last().map_or(0, |last| last.update)
    }

    /// Whether no validation before had as low a loss.
    pub fn is_best(&self, validation: &Validation) -> bool {
        let earlier = &mut self.validations.iter();
        earlier.all(|earlier| earlier.valid_loss > validation.valid_loss)
    }

    /// Whether a run with the settings and data of `now` continues this one.
    fn continues_as(&self, now: &Self, path: &Path) -> Result<(), TrainError> {
        // What may change: how long to train, and what does not touch the weights.
        let comparable = |state: &Self| TrainingConfig {
            updates: 0,
            validate_every: 0,
            keep_checkpoints: 0,
            ..state.config.clone()
        };
        let differs = |what: &str, before: String, now: String| TrainError::OtherRun {
            path: path.to_owned(),
            what: what.to_owned(),
            before,
            now,
        };
        if comparable(self) != comparable(now) {
            let (what, before, now) = first_difference(&comparable(self), &comparable(now));
            return Err(differs(&what, before, now));
        }
        let data = |state: &Self| {
            format!(
                "{} pairs of checksum {:08x}",
                state.pairs, state.pairs_checksum
            )
        };
        if data(self) != data(now) {
            return Err(differs("training data of", data(self), data(now)));
        }
        Ok(())
    }
}

/// The first key in which two configurations differ, and its values.
fn first_difference<T: Serialize>(before: &T, now: &T) -> (String, String, String) {
    let fields = |config: &T| match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (before, now) = (fields(before), fields(now));
    let show = |value: Option<&serde_json::Value>| value.map_or("absent".into(), |v| v.to_string());
    before
        .keys()
        .chain(now.keys())
        .find(|&key| before.get(key) != now.get(key))
        .map(|key| {
            (
                format!("`{key}`"),
                show(before.get(key)),
                show(now.get(key)),
            )
        })
        .unwrap_or_default()
}

type OptimizerRecord<B> =
    <PaperAdam<TrainingModel<B>, B> as Optimizer<TrainingModel<B>, B>>::Record;

/// Everything that a run needs to go on.
pub(crate) struct Checkpoint<B: AutodiffBackend> {
    pub model: Transformer<B::InnerBackend>,
    pub optimizer: OptimizerRecord<B>,
    pub state: RunState,
}

/// What a checkpoint gives back.
pub(crate) struct Restored<B: AutodiffBackend> {
    pub model: Transformer<B>,
    pub optimizer: OptimizerRecord<B>,
    pub state: RunState,
}

/// Whether a directory holds a model or checkpoints, which a new run would write over.
pub fn holds_model(directory: impl AsRef<Path>) -> bool {
    let directory = directory.as_ref();
    [CONFIG_FILE, WEIGHTS_FILE, CHECKPOINTS]
        .iter()
        .any(|name| directory.join(name).exists())
}

/// The directory of a run.
pub(crate) struct Checkpoints {
    directory: PathBuf,
    keep: usize,
}

impl Checkpoints {
    /// Opens or makes the directory; one that holds a model or checkpoints already is refused
    /// unless it is to be resumed.
    pub fn open(directory: &Path, resume: bool, keep: usize) -> Result<Self, TrainError> {
        let checkpoints = Self {
            directory: directory.to_owned(),
            keep,
        };
        if !resume && holds_model(directory) {
            return Err(TrainError::Occupied(directory.to_owned()));
        }
        let below = checkpoints.below();
        fs::create_dir_all(&below).map_err(TrainError::io(&below))?;
        checkpoints.remove_unfinished()?;
        Ok(checkpoints)
    }

    fn below(&self) -> PathBuf {
        self.directory.join(CHECKPOINTS)
    }

    fn path(&self, update: usize) -> PathBuf {
        self.below().join(format!("{PREFIX}{update:08}"))
    }

    /// Updates of the whole checkpoints, ascending.
    fn updates(&self) -> Result<Vec<usize>, TrainError> {
        let below = self.below();
        let entries = match fs::read_dir(&below) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(TrainError::io(&below)(error)),
        };
        let mut updates = Vec::new();
        for entry in entries {
            let name = entry.map_err(TrainError::io(&below))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            updates.extend(number.and_then(|number| number.parse::<usize>().ok()));
        }
        updates.sort_unstable();
        Ok(updates)
    }

    /// Removes what a killed run left half-written.
    fn remove_unfinished(&self) -> Result<(), TrainError> {
        let below = self.below();
        for entry in fs::read_dir(&below).map_err(TrainError::io(&below))? {
            let path = entry.map_err(TrainError::io(&below))?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                fs::remove_dir_all(&path).map_err(TrainError::io(&path))?;
            }
        }
        Ok(())
    }

    /// The newest whole checkpoint.
    pub fn newest(&self) -> Option<Found> {
        let newest = self.updates().ok()?.pop()?;
        Some(Found(self.path(newest)))
    }

    /// Whether the directory holds a model beside the checkpoints.
    pub fn has_model(&self) -> bool {
        self.directory.join(WEIGHTS_FILE).exists()
    }

    /// Makes `model` the directory's model.
    pub fn save_model<B: Backend>(&self, model: &Transformer<B>) -> Result<(), TrainError> {
        Ok(model.save(&self.directory)?)
    }

    /// Writes a checkpoint to the side, renames it into place, and removes the oldest ones.
    pub fn save<B: AutodiffBackend>(&self, checkpoint: &Checkpoint<B>) -> Result<(), TrainError> {
        let path = self.path(checkpoint.state.update);
        let side = path.with_extension("tmp");
        let written = write(checkpoint, &side).and_then(|()| {
            if path.exists() {
                fs::remove_dir_all(&path).map_err(TrainError::io(&path))?;
            }
            fs::rename(&side, &path).map_err(TrainError::io(&path))
        });
        if written.is_err() {
            // The error that matters is the first one.
            let _ = fs::remove_dir_all(&side);
        }
        written?;
        let mut old = self.updates()?;
        old.truncate(old.len().saturating_sub(self.keep));
        for update in old {
            let path = self.path(update);
            fs::remove_dir_all(&path).map_err(TrainError::io(&path))?;
        }
        Ok(())
    }
}

fn write<B: AutodiffBackend>(
    checkpoint: &Checkpoint<B>,
    directory: &Path,
) -> Result<(), TrainError> {
    checkpoint.model.save(directory)?;
    let path = directory.join(OPTIMIZER_FILE);
    let optimizer = Recorder::<B>::record(&recorder(), checkpoint.optimizer.clone(), ())
        .map_err(|error| TrainError::io(&path)(std::io::Error::other(error)))?;
    replace_file_with(&path, &optimizer).map_err(TrainError::io(&path))?;
    let path = directory.join(RUN_FILE);
    let run = RunFile {
        optimizer_checksum: checksum(&optimizer),
        state: checkpoint.state.clone(),
    };
    let json = serde_json::to_vec_pretty(&run).map_err(std::io::Error::other);
    json.and_then(|json| replace_file_with(&path, json))
        .map_err(TrainError::io(path))
}

/// `run.json`.
#[derive(Serialize, Deserialize)]
struct RunFile {
    /// Of `optimizer.mpk`, whose format would not notice every damage.
    optimizer_checksum: u32,
    #[serde(flatten)]
    state: RunState,
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut checksum = Crc::new();
    checksum.update(bytes);
    checksum.sum()
}

fn recorder() -> NamedMpkBytesRecorder<FullPrecisionSettings> {
    NamedMpkBytesRecorder::new()
}

/// A checkpoint in its directory.
pub(crate) struct Found(PathBuf);

impl Found {
    /// Reads the checkpoint of a run with the settings and data of `now`.
    pub fn restore<B: AutodiffBackend>(
        &self,
        now: &RunState,
        config: &TransformerConfig,
        device: &B::Device,
    ) -> Result<Restored<B>, TrainError> {
        let Self(directory) = self;
        let path = directory.join(RUN_FILE);
        let json = fs::read(&path).map_err(TrainError::io(&path))?;
        let damaged = |path: &Path, problem: String| TrainError::Damaged {
            path: path.to_owned(),
            problem,
        };
        let RunFile {
            optimizer_checksum,
            state,
        } = serde_json::from_slice(&json).map_err(|error| damaged(&path, error.to_string()))?;
        state.continues_as(now, directory)?;
        let model = Transformer::<B>::load(directory, device)?;
        if model.config() != config {
            let (what, before, now) = first_difference(model.config(), config);
            return Err(TrainError::OtherRun {
                path: directory.clone(),
                what,
                before,
                now,
            });
        }
        let path = directory.join(OPTIMIZER_FILE);
        let bytes = fs::read(&path).map_err(TrainError::io(&path))?;
        let found = checksum(&bytes);
        if found != optimizer_checksum {
            let problem = format!("checksum {found:08x}, not {optimizer_checksum:08x}");
            return Err(damaged(&path, problem));
        }
        let optimizer = Recorder::<B>::load(&recorder(), bytes, device)
            .map_err(|error| damaged(&path, error.to_string()))?;
        Ok(Restored {
            model,
            optimizer,
            state: RunState {
                config: now.config.clone(),
                ..state
            },
        })
    }
}

/// Gives every parameter its place in the model as its id.
///
/// An optimizer's record names parameters by id, and ids are otherwise drawn anew in each process.
pub(crate) fn number_parameters<B: AutodiffBackend, M: AutodiffModule<B>>(model: M) -> M {
    struct Numbering(u64);

    impl<B: Backend> ModuleMapper<B> for Numbering {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            let (_, tensor, mapper) = param.consume();
            self.0 += 1;
            Param::from_mapped_value(ParamId::from(self.0), tensor, mapper)
        }
    }

    Module::<B>::map(model, &mut Numbering(0))
}
