//! Checkpoints: written whole or not at all, and resumed to the same next update.
//!
//! ```text
//! DIR/config.json, model.safetensors          the model of the lowest validation loss
//! DIR/run.lock                                empty; locked while a run lasts
//! DIR/checkpoints/update-00000500/
//!     config.json, model.safetensors          the model after update 500
//!     optimizer.mpk                           Adam's moments
//!     run.json                                settings, data, validations so far
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::module::{AutodiffModule, Module, ModuleMapper, Param, ParamId};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::{Deserialize, Serialize};
use transformer_core::{CONFIG_FILE, WEIGHTS_FILE, replace_file_with};

use crate::data::{Checksum, Example};
use crate::error::TrainError;
use crate::objective::Objective;
use crate::run_lock::RunLock;
use crate::run_state::RunState;

pub(crate) const CHECKPOINTS: &str = "checkpoints";
const OPTIMIZER_FILE: &str = "optimizer.mpk";
pub(crate) const RUN_FILE: &str = "run.json";
const PREFIX: &str = "update-";

/// Everything that a run needs to be resumed: its model, its optimizer's record, and its state.
pub(crate) struct Checkpoint<M, O> {
    pub model: M,
    pub optimizer: O,
    pub state: RunState,
}

/// Whether a directory holds a model or checkpoints, which a new run would overwrite.
///
/// An empty folder `checkpoints`, as a run leaves that ends before its first one, is nothing to overwrite; one
/// that cannot be read may be.
pub fn holds_model(directory: impl AsRef<Path>) -> bool {
    let directory = directory.as_ref();
    let files = [CONFIG_FILE, WEIGHTS_FILE];
    if files.iter().any(|name| directory.join(name).exists()) {
        return true;
    }
    match whole_checkpoints(directory) {
        Ok(found) => !found.is_empty(),
        Err(_) => true,
    }
}

/// The whole checkpoints of the run in a directory, the oldest first; none where there is no run.
pub(crate) fn whole_checkpoints(run: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(run.join(CHECKPOINTS)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(PREFIX));
        if let Some(update) = number.and_then(|number| number.parse::<usize>().ok()) {
            found.push((update, path));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The directory of the run that a checkpoint belongs to; `None` for other directories.
pub(crate) fn run_of(checkpoint: &Path) -> Option<PathBuf> {
    let path = checkpoint.canonicalize().ok()?;
    let below = path.parent()?;
    let run = below.parent()?;
    (below.file_name()? == CHECKPOINTS).then(|| run.to_owned())
}

/// The directory of a run.
pub(crate) struct Checkpoints {
    /// Keeps other runs out of the directory.
    lock: RunLock,
    keep: usize,
}

impl Checkpoints {
    /// Opens the locked directory; refuses one that already holds a model or checkpoints, unless the run is
    /// to be resumed.
    pub fn open(lock: RunLock, resume: bool, keep: usize) -> Result<Self, TrainError> {
        let checkpoints = Self { lock, keep };
        let directory = checkpoints.directory();
        if !resume && holds_model(directory) {
            return Err(TrainError::Occupied(directory.to_owned()));
        }
        let below = checkpoints.below();
        fs::create_dir_all(&below).map_err(TrainError::io(&below))?;
        checkpoints.remove_unfinished()?;
        Ok(checkpoints)
    }

    fn directory(&self) -> &Path {
        self.lock.directory()
    }

    fn below(&self) -> PathBuf {
        self.directory().join(CHECKPOINTS)
    }

    fn path(&self, update: usize) -> PathBuf {
        self.below().join(format!("{PREFIX}{update:08}"))
    }

    /// Removes the half-written files of a killed run.
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
        let newest = whole_checkpoints(self.directory()).ok()?.pop()?;
        Some(Found(newest))
    }

    /// Whether the directory holds a model beside the checkpoints.
    pub fn has_model(&self) -> bool {
        self.directory().join(WEIGHTS_FILE).exists()
    }

    /// Makes `model` the directory's model.
    pub fn save_model<B: Backend>(&self, model: &impl Objective<B>) -> Result<(), TrainError> {
        model.save(self.directory())
    }

    /// Writes a checkpoint under another name, renames it, and removes the oldest ones.
    pub fn save<B, M, O>(&self, checkpoint: Checkpoint<M, O>) -> Result<(), TrainError>
    where
        B: AutodiffBackend,
        M: Objective<B::InnerBackend>,
        O: Record<B>,
    {
        let path = self.path(checkpoint.state.update);
        let side = path.with_extension("tmp");
        let written = write::<B, _, _>(checkpoint, &side).and_then(|()| {
            if path.exists() {
                fs::remove_dir_all(&path).map_err(TrainError::io(&path))?;
            }
            fs::rename(&side, &path).map_err(TrainError::io(&path))
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&side);
        }
        written?;
        let mut old = whole_checkpoints(self.directory()).map_err(TrainError::io(self.below()))?;
        old.truncate(old.len().saturating_sub(self.keep));
        for path in old {
            fs::remove_dir_all(&path).map_err(TrainError::io(&path))?;
        }
        Ok(())
    }
}

fn write<B, M, O>(checkpoint: Checkpoint<M, O>, directory: &Path) -> Result<(), TrainError>
where
    B: AutodiffBackend,
    M: Objective<B::InnerBackend>,
    O: Record<B>,
{
    let Checkpoint {
        model,
        optimizer,
        state,
    } = checkpoint;
    model.save(directory)?;
    let path = directory.join(OPTIMIZER_FILE);
    let optimizer = Recorder::<B>::record(&recorder(), optimizer, ())
        .map_err(|error| TrainError::io(&path)(io::Error::other(error)))?;
    replace_file_with(&path, &optimizer).map_err(TrainError::io(&path))?;
    let path = directory.join(RUN_FILE);
    let run = RunFile {
        optimizer_checksum: checksum(&optimizer),
        state,
    };
    let json = serde_json::to_vec_pretty(&run).map_err(io::Error::other);
    json.and_then(|json| replace_file_with(&path, json))
        .map_err(TrainError::io(path))
}

/// `run.json`.
#[derive(Serialize, Deserialize)]
struct RunFile {
    /// Checksum of `optimizer.mpk`, whose format does not detect all damage.
    optimizer_checksum: u32,
    #[serde(flatten)]
    state: RunState,
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut checksum = Checksum::default();
    checksum.bytes(bytes);
    checksum.sum()
}

fn recorder() -> NamedMpkBytesRecorder<FullPrecisionSettings> {
    NamedMpkBytesRecorder::new()
}

/// A checkpoint in its directory.
pub(crate) struct Found(PathBuf);

impl Found {
    /// Reads the checkpoint of a run with the settings and data of `now` into `model`, whose frozen
    /// parameters stay frozen.
    pub fn restore<B, M, O>(&self, now: &RunState, model: M) -> Result<Checkpoint<M, O>, TrainError>
    where
        B: Backend,
        M: Objective<B>,
        O: Record<B>,
    {
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
        state.continues_as(now, directory, M::Example::NAME)?;
        let device = model.devices().into_iter().next().unwrap_or_default();
        let model = model.restore(directory)?;
        let path = directory.join(OPTIMIZER_FILE);
        let bytes = fs::read(&path).map_err(TrainError::io(&path))?;
        let found = checksum(&bytes);
        if found != optimizer_checksum {
            let problem = format!("checksum {found:08x}, not {optimizer_checksum:08x}");
            return Err(damaged(&path, problem));
        }
        let optimizer = Recorder::<B>::load(&recorder(), bytes, &device)
            .map_err(|error| damaged(&path, error.to_string()))?;
        Ok(Checkpoint {
            model,
            optimizer,
            state: RunState {
                config: now.config.clone(),
                ..state
            },
        })
    }
}

/// Gives every parameter its position in the model as its id.
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
