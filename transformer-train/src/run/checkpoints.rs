//! Checkpoints: written atomically, and resumed with the same next update.
//!
//! ```text
//! DIR/config.json, model.safetensors          the best model, by `best_by`
//! DIR/run.lock                                empty; locked while a run lasts
//! DIR/checkpoints/update-00000500/
//!     config.json, model.safetensors          the model after update 500; with `ema_decay`, the averaged weights
//!     training.safetensors                    only with `ema_decay`: the weights from which training continues
//!     optimizer.mpk                           Adam's moments
//!     run.json                                settings, data, validations so far; checksums of the files beside it
//! DIR/checkpoints/*.tmp                       being written or removed, or left by a killed run
//! ```
//!
//! A run may be killed between any two writes; from each of these states, resuming leads to the same result:
//!
//! - A file is written under another name, flushed to disk and renamed. So is a checkpoint, which is a directory
//!   of files. A checkpoint is renamed before it is removed.
//! - The directory's model is replaced before the checkpoint that records its validation is written. A run killed
//!   between the two repeats the validation and replaces the model by the same one.
//! - Old checkpoints are removed once the new one is complete. If a run is killed before, they are removed with
//!   the next checkpoint.
//! - The run's directory is created only at the start. Before each write, and before a checkpoint is renamed into
//!   place, `run.lock` must still be the file that the run has locked.
//! - An existing checkpoint is not written again: its weights belong to its update. Only `run.json` is replaced.
//!
//! Damage is found before a run is resumed: `run.json` has a checksum of every other file of its checkpoint. The
//! error then names an older, intact checkpoint. The run does not fall back to it by itself, because it would have
//! to remove the damaged one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::{AutodiffModule, Module, ModuleMapper, Param, ParamId};
use burn::optim::Optimizer;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use flate2::CrcWriter;
use serde::{Deserialize, Serialize};
use transformer_core::formats::{
    CONFIG_FILE, ModelError, TOKENIZER_FILES, WEIGHTS_FILE, load_weights, remove_unfinished_files,
    rename_and_sync, replace_file_with, save_weights,
};

use crate::data::{Checksum, Example};
use crate::error::TrainError;
use crate::files;
use crate::objective::gradients::device;
use crate::objective::{Objective, Trainable};
use crate::optim::moments_file;
use crate::run::lock::RunLock;
use crate::run::state::RunState;

pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// The weights from which training continues, if `model.safetensors` has their moving average.
const TRAINING_WEIGHTS_FILE: &str = "training.safetensors";
const OPTIMIZER_FILE: &str = "optimizer.mpk";
pub(crate) const RUN_FILE: &str = "run.json";
const PREFIX: &str = "update-";
const AVERAGE: &str = "average.tmp";

/// Everything that a run needs to resume: its model, its optimizer's record, and its state.
pub(crate) struct Checkpoint<M, O> {
    /// The trained model.
    pub model: M,
    /// The model with averaged weights, if the run has one.
    pub average: Option<M>,
    pub optimizer: O,
    pub state: RunState,
}

/// Whether a directory holds a model or checkpoints, which a new run would overwrite.
///
/// A run that ends before its first checkpoint leaves an empty folder `checkpoints`, which does not count. One
/// that cannot be read does.
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

/// The complete checkpoints of the run in a directory, with their updates, oldest first; none if there is no run.
pub(crate) fn whole_checkpoints(run: &Path) -> io::Result<Vec<(usize, PathBuf)>> {
    let entries = match fs::read_dir(run.join(CHECKPOINTS)) {
        Ok(entries) => entries,
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
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
    Ok(found)
}

/// Whether the error means that a file or directory does not exist.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// The directory of a run.
pub(crate) struct Checkpoints {
    /// Keeps other runs out of the directory.
    lock: RunLock,
    /// The update of the newest checkpoint; 0 before the first.
    saved: AtomicUsize,
}

impl Checkpoints {
    /// Opens the locked directory; refuses one that already holds a model or checkpoints, unless the run is
    /// resumed, and one to be resumed whose checkpoints were removed.
    pub fn open(lock: RunLock, resume: bool) -> Result<Self, TrainError> {
        let checkpoints = Self {
            lock,
            saved: AtomicUsize::new(0),
        };
        checkpoints.check()?;
        let directory = checkpoints.directory();
        if !resume && holds_model(directory) {
            return Err(TrainError::Occupied(directory.to_owned()));
        }
        let below = checkpoints.below();
        if !below.is_dir() {
            // A run makes the folder before its model.
            if checkpoints.has_model() {
                return Err(TrainError::NoCheckpoints(directory.to_owned()));
            }
            fs::create_dir(&below).map_err(TrainError::io(&below))?;
        }
        checkpoints.remove_unfinished()?;
        if let Some((newest, _)) = checkpoints.whole()?.last() {
            checkpoints.saved.store(*newest, Ordering::Relaxed);
        }
        Ok(checkpoints)
    }

    /// Checks that the directory is still the one that was opened.
    ///
    /// # Errors
    /// [`TrainError::DirectoryLost`].
    pub fn check(&self) -> Result<(), TrainError> {
        let saved = self.saved.load(Ordering::Relaxed);
        self.lock.check((saved > 0).then_some(saved))
    }

    /// The given error, or the error that caused it: the directory is lost.
    pub fn or_lost(&self, error: TrainError) -> TrainError {
        self.check().err().unwrap_or(error)
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

    fn whole(&self) -> Result<Vec<(usize, PathBuf)>, TrainError> {
        whole_checkpoints(self.directory()).map_err(TrainError::io(self.below()))
    }

    /// Removes checkpoints that a killed run left incomplete.
    fn remove_unfinished(&self) -> Result<(), TrainError> {
        let below = self.below();
        for entry in fs::read_dir(&below).map_err(TrainError::io(&below))? {
            let path = entry.map_err(TrainError::io(&below))?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                fs::remove_dir_all(&path).map_err(TrainError::io(&path))?;
            }
        }
        let names = [CONFIG_FILE, WEIGHTS_FILE]
            .into_iter()
            .chain(TOKENIZER_FILES);
        let mut files: Vec<_> = names.map(|name| self.directory().join(name)).collect();
        let checkpoints = self.whole()?.into_iter();
        files.extend(checkpoints.map(|(_, path)| path.join(RUN_FILE)));
        for file in files {
            remove_unfinished_files(&file).map_err(TrainError::io(file))?;
        }
        Ok(())
    }

    /// The newest complete checkpoint.
    pub fn newest(&self) -> Result<Option<Found>, TrainError> {
        let mut all = self.whole()?;
        let updates = updates(&all);
        let newest = all.pop();
        Ok(newest.map(|(update, directory)| Found {
            run: self.directory().to_owned(),
            update,
            directory,
            updates,
        }))
    }

    /// The newest `count` of a run's last checkpoints, in order.
    pub fn last(
        &self,
        state: &RunState,
        count: usize,
    ) -> Result<Vec<(usize, PathBuf)>, TrainError> {
        let mut all = self.whole()?;
        let last = state.last_checkpoints(&updates(&all), count);
        all.retain(|(update, _)| last.contains(update));
        Ok(all)
    }

    /// A temporary name for the directory of an average; a resumed run removes it.
    pub fn average(&self) -> PathBuf {
        self.below().join(AVERAGE)
    }

    /// Whether the directory holds a model beside the checkpoints.
    pub fn has_model(&self) -> bool {
        self.directory().join(WEIGHTS_FILE).exists()
    }

    /// Whether the directory has everything that this state requires, and no checkpoint to remove.
    pub fn are_settled(&self, state: &RunState) -> Result<bool, TrainError> {
        let there = updates(&self.whole()?);
        let kept = state.kept_checkpoints(&there);
        Ok(self.has_model() && there.iter().all(|update| kept.contains(update)))
    }

    /// Saves `model` as the directory's model.
    pub fn save_model<B: Backend>(&self, model: &impl Objective<B>) -> Result<(), TrainError> {
        self.check()?;
        model.save(self.directory())
    }

    /// Writes a checkpoint atomically, and removes those that are no longer kept. If the checkpoint already
    /// exists, only its record of the run is replaced.
    pub fn save<B, M, O>(&self, checkpoint: Checkpoint<M, O>) -> Result<(), TrainError>
    where
        B: AutodiffBackend,
        M: Objective<B::InnerBackend>,
        O: Record<B>,
    {
        let state = checkpoint.state.clone();
        let path = self.path(state.update);
        self.check()?;
        match path.exists() {
            true => replace_state(&path, checkpoint.state)?,
            false => self.write_whole::<B, _, _>(checkpoint, &path)?,
        }
        self.saved.store(state.update, Ordering::Relaxed);
        let all = self.whole()?;
        let kept = state.kept_checkpoints(&updates(&all));
        for (_, path) in all.iter().filter(|(update, _)| !kept.contains(update)) {
            remove(path)?;
        }
        Ok(())
    }

    /// Writes a checkpoint under another name, then renames it.
    fn write_whole<B, M, O>(
        &self,
        checkpoint: Checkpoint<M, O>,
        path: &Path,
    ) -> Result<(), TrainError>
    where
        B: AutodiffBackend,
        M: Objective<B::InnerBackend>,
        O: Record<B>,
    {
        let side = path.with_extension("tmp");
        // If the folder of checkpoints was removed, it is not created again.
        fs::create_dir(&side).map_err(TrainError::io(&side))?;
        let written = write::<B, _, _>(checkpoint, &side)
            .and_then(|()| self.check())
            .and_then(|()| rename_and_sync(&side, path).map_err(TrainError::io(path)));
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&side);
        }
        written
    }
}

fn updates(checkpoints: &[(usize, PathBuf)]) -> Vec<usize> {
    checkpoints.iter().map(|(update, _)| *update).collect()
}

/// Removes a checkpoint. It is renamed first: every directory with the name of a checkpoint must be complete.
fn remove(path: &Path) -> Result<(), TrainError> {
    let side = path.with_extension("tmp");
    fs::rename(path, &side).map_err(TrainError::io(path))?;
    fs::remove_dir_all(&side).map_err(TrainError::io(side))
}

fn write<B, M, O>(checkpoint: Checkpoint<M, O>, directory: &Path) -> Result<(), TrainError>
where
    B: AutodiffBackend,
    M: Objective<B::InnerBackend>,
    O: Record<B>,
{
    let Checkpoint {
        model,
        average,
        optimizer,
        state,
    } = checkpoint;
    match average {
        None => model.save(directory)?,
        // A checkpoint is a model directory: its model is the validated one.
        Some(average) => {
            average.save(directory)?;
            save_weights(&model, directory.join(TRAINING_WEIGHTS_FILE))?;
        }
    }
    let file_checksums = file_checksums(directory)?;
    let path = directory.join(OPTIMIZER_FILE);
    let optimizer = Recorder::<B>::record(&recorder(), optimizer, ())
        .map_err(|error| TrainError::io(&path)(io::Error::other(error)))?;
    replace_file_with(&path, &optimizer).map_err(TrainError::io(&path))?;
    let run = RunFile {
        optimizer_checksum: checksum(&optimizer),
        file_checksums,
        state,
    };
    run.write(directory)
}

/// The checksums of the files in a directory, by name.
fn file_checksums(directory: &Path) -> Result<BTreeMap<String, u32>, TrainError> {
    let mut checksums = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(TrainError::io(directory))? {
        let path = entry.map_err(TrainError::io(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|_| path.is_file()) {
            checksums.insert(name.to_owned(), file_checksum(&path)?);
        }
    }
    Ok(checksums)
}

fn file_checksum(path: &Path) -> Result<u32, TrainError> {
    let mut checksum = CrcWriter::new(io::sink());
    files::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut checksum))
        .map_err(TrainError::io(path))?;
    Ok(checksum.crc().sum())
}

/// Replaces the record of the run in a checkpoint.
fn replace_state(directory: &Path, state: RunState) -> Result<(), TrainError> {
    let before = RunFile::read(directory)?;
    RunFile { state, ..before }.write(directory)
}

/// `run.json`.
#[derive(Serialize, Deserialize)]
struct RunFile {
    /// Checksum of `optimizer.mpk`, whose format does not detect all damage.
    optimizer_checksum: u32,
    /// Checksums of the model's files, by name. Earlier versions wrote none.
    #[serde(default)]
    file_checksums: BTreeMap<String, u32>,
    #[serde(flatten)]
    state: RunState,
}

impl RunFile {
    fn read(checkpoint: &Path) -> Result<Self, TrainError> {
        let path = checkpoint.join(RUN_FILE);
        let json = files::read(&path).map_err(TrainError::io(&path))?;
        serde_json::from_slice(&json).map_err(|error| damaged(&path, error.to_string()))
    }

    /// Checks that the files beside it are unchanged.
    fn check_files(&self, checkpoint: &Path) -> Result<(), TrainError> {
        let files = self.file_checksums.iter();
        let files = files.map(|(name, checksum)| (name.as_str(), *checksum));
        for (name, expected) in files.chain([(OPTIMIZER_FILE, self.optimizer_checksum)]) {
            let path = checkpoint.join(name);
            let found = file_checksum(&path)?;
            if found != expected {
                let problem = format!("is damaged: checksum {found:08x}, not {expected:08x}");
                return Err(damaged(&path, problem));
            }
        }
        Ok(())
    }

    fn write(&self, checkpoint: &Path) -> Result<(), TrainError> {
        let path = checkpoint.join(RUN_FILE);
        let json = serde_json::to_vec_pretty(self).map_err(io::Error::other);
        json.and_then(|json| replace_file_with(&path, json))
            .map_err(TrainError::io(path))
    }
}

/// An error of the newest checkpoint of the run in a directory. If that checkpoint is damaged, the error also
/// names the newest intact one.
pub(crate) fn with_older(run: &Path, error: TrainError) -> TrainError {
    use io::ErrorKind::PermissionDenied;
    // Not damage: the user should not remove such a checkpoint.
    if let TrainError::Io { source, .. } | TrainError::Directory(ModelError::Io { source, .. }) =
        &error
        && source.kind() == PermissionDenied
    {
        return error;
    }
    let Ok(checkpoints) = whole_checkpoints(run) else {
        return error;
    };
    let is_whole = |checkpoint: &Path| {
        let file = RunFile::read(checkpoint);
        file.and_then(|file| file.check_files(checkpoint)).is_ok()
    };
    let mut damaged = Vec::new();
    let mut whole = None;
    for (_, checkpoint) in checkpoints.into_iter().rev() {
        if is_whole(&checkpoint) {
            whole = Some(checkpoint);
            break;
        }
        damaged.push(checkpoint);
    }
    match damaged.is_empty() {
        true => error,
        false => TrainError::DamagedCheckpoint {
            source: Box::new(error),
            damaged,
            whole,
        },
    }
}

fn damaged(path: &Path, problem: String) -> TrainError {
    TrainError::Damaged {
        path: path.to_owned(),
        problem,
    }
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
pub(crate) struct Found {
    /// The directory of its run.
    run: PathBuf,
    /// Its update, from its name.
    update: usize,
    directory: PathBuf,
    /// The updates of all checkpoints of its run.
    updates: Vec<usize>,
}

impl Found {
    /// Reads the checkpoint into `model`, whose frozen parameters stay frozen; the settings and data of the run
    /// must be those of `now`.
    pub fn restore<B, M, O>(
        self,
        now: &RunState,
        model: M,
    ) -> Result<Checkpoint<M, O::Record>, TrainError>
    where
        B: AutodiffBackend,
        M: Trainable<B>,
        O: Optimizer<M, B> + 'static,
    {
        let Self {
            run,
            update,
            directory,
            updates,
        } = self;
        let or_older = |error| with_older(&run, error);
        let file = RunFile::read(&directory).map_err(or_older)?;
        file.state
            .continues_as(now, &directory, <M as Objective<B>>::Example::NAME)?;
        file.check_files(&directory).map_err(or_older)?;
        let state = file.state;
        let counts = state.check_counts(update);
        counts.map_err(|problem| or_older(damaged(&directory.join(RUN_FILE), problem)))?;
        let device = device::<B>(&model);
        let model = Objective::<B>::restore(model, &directory)?;
        let (model, average) = match now.config.ema_decay {
            None => (model, None),
            Some(_) => {
                let weights = directory.join(TRAINING_WEIGHTS_FILE);
                (load_weights(model.clone(), weights)?, Some(model))
            }
        };
        let path = directory.join(OPTIMIZER_FILE);
        let bytes = files::read(&path).map_err(TrainError::io(&path))?;
        moments_file::check::<B, M, O>(&bytes, &model, state.update)
            .map_err(|problem| damaged(&path, problem))?;
        let optimizer = Recorder::<B>::load(&recorder(), bytes, &device)
            .map_err(|error| damaged(&path, error.to_string()))?;
        Ok(Checkpoint {
            model,
            average,
            optimizer,
            state: RunState {
                config: now.config.clone(),
                valid: now.valid,
                frozen: now.frozen.clone(),
                scheduled: state.scheduled.or(updates),
                ..state
            },
        })
    }
}

/// Gives every parameter its position in the model as its id.
///
/// An optimizer's record refers to parameters by id, and ids are otherwise random in each process.
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
