//! Checkpoint averaging (§6.1): one model whose weights are the means of the weights of several.
//!
//! It reads and writes the files of model directories, and knows no model: it serves every type of
//! model whose weights are in `model.safetensors`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use serde_json::{Map, Value};
use transformer_core::{
    CONFIG_FILE, GENERATION_FILE, TOKENIZER_FILES, WEIGHTS_FILE, replace_file, run_of_checkpoint,
};

use crate::checkpoint::{RUN_FILE, holds_model, whole_checkpoints};
use crate::error::{AverageError, Difference, first_difference, or_absent};
use crate::scheduled::Scheduled;

/// The newest `count` checkpoints of the run in a directory, the oldest of them first.
///
/// Older ones that the run has kept because their validations were good
/// ([`TrainingConfig::keep_best`](crate::TrainingConfig::keep_best)) are not among them: others, between them
/// and the newest, are missing.
///
/// # Errors
/// [`AverageError::TooFewCheckpoints`], or when the directory or the newest checkpoint's record of the run
/// cannot be read.
pub fn newest_checkpoints(
    run: impl AsRef<Path>,
    count: usize,
) -> Result<Vec<PathBuf>, AverageError> {
    let run = run.as_ref();
    let mut checkpoints = last_checkpoints(run)?;
    let found = checkpoints.len();
    match found.checked_sub(count) {
        Some(older) => Ok(checkpoints.split_off(older)),
        None => Err(AverageError::TooFewCheckpoints {
            run: run.to_owned(),
            found,
            asked: count,
        }),
    }
}

/// The last checkpoints of the run in a directory, the oldest first, as the newest one's record has it.
fn last_checkpoints(run: &Path) -> Result<Vec<PathBuf>, AverageError> {
    /// A part of `run.json`.
    #[derive(Deserialize)]
    struct Record {
        #[serde(default)]
        scheduled: Scheduled,
    }
    let mut all = whole_checkpoints(run).map_err(AverageError::io(run))?;
    if let Some((newest, path)) = all.last() {
        let (newest, path) = (*newest, path.join(RUN_FILE));
        if let Some(json) = read_if_there(&path)? {
            let record: Record = serde_json::from_slice(&json)
                .map_err(|error| AverageError::io(&path)(error.into()))?;
            let updates: Vec<_> = all.iter().map(|(update, _)| *update).collect();
            let last = record.scheduled.last(newest, &updates, updates.len());
            all.retain(|(update, _)| last.contains(update));
        }
    }
    Ok(all.into_iter().map(|(_, path)| path).collect())
}

/// Averages models into a new one: each weight is the mean of its values in all models (§6.1).
///
/// The paper averages the last 5 checkpoints of a base model, and the last 20 of a big one:
///
/// ```no_run
/// use transformer_train::{average_models, newest_checkpoints};
///
/// # fn main() -> Result<(), transformer_train::AverageError> {
/// average_models(&newest_checkpoints("model", 5)?, "averaged")?;
/// # Ok(())
/// # }
/// ```
///
/// `models` are directories of models or of checkpoints, of any one type of model; a directory that is
/// given twice counts twice. `out`, which is created if missing, gets their configuration, their weights,
/// their tokenizers and the first one's `generation_config.json`, which for a checkpoint are those of its run.
/// The average of one model is that model, bit for bit.
///
/// Weights in 32 and in 64 bits are summed in 64 bits. Tensors of other types, such as tables of indices,
/// have no mean; they must be the same in all models. Memory holds one tensor at a time, and its sum.
///
/// # Errors
/// When there is no model, when `out` already holds one, when the models differ in their
/// configurations, in the names, shapes or types of their tensors, or in their tokenizers, or when a
/// file is damaged or cannot be read or written. No file in `out` has changed then.
pub fn average_models<P: AsRef<Path>>(
    models: &[P],
    out: impl AsRef<Path>,
) -> Result<(), AverageError> {
    let out = out.as_ref();
    if holds_model(out) {
        return Err(AverageError::Occupied(out.to_owned()));
    }
    let models: Vec<&Path> = models.iter().map(AsRef::as_ref).collect();
    let weights = models
        .iter()
        .map(|model| WeightsFile::open(model))
        .collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = weights.split_first() else {
        return Err(AverageError::NoModel);
    };
    let config = common_config(&models)?;
    let tokenizers = common_tokenizers(&models)?;
    let options = options(&models)?;
    for other in others {
        other.check_like(first)?;
    }

    fs::create_dir_all(out).map_err(AverageError::io(out))?;
    let copies = config
        .map(|config| (CONFIG_FILE, config))
        .into_iter()
        .chain(options.map(|options| (GENERATION_FILE, options)))
        .chain(tokenizers);
    let mut files: Vec<_> = copies
        .map(|(name, bytes)| NewFile {
            path: out.join(name),
            content: Content::Bytes(bytes),
        })
        .collect();
    files.push(NewFile {
        path: out.join(WEIGHTS_FILE),
        content: Content::Mean { first, others },
    });
    write_all(&files)
}

/// The configuration of all models, as the first one's file has it; `None` if they have none.
fn common_config(models: &[&Path]) -> Result<Option<Vec<u8>>, AverageError> {
    let mut first: Option<ConfigFile> = None;
    for model in models {
        let config = ConfigFile::read(model)?;
        match &first {
            None => first = Some(config),
            Some(first) => config.check_like(first)?,
        }
    }
    Ok(first.and_then(|first| first.bytes))
}

/// A model's configuration. A module without one has no file, and no keys.
struct ConfigFile {
    path: PathBuf,
    bytes: Option<Vec<u8>>,
    keys: Map<String, Value>,
}

impl ConfigFile {
    fn read(model: &Path) -> Result<Self, AverageError> {
        let path = model.join(CONFIG_FILE);
        let bytes = read_if_there(&path)?;
        let keys = match &bytes {
            Some(bytes) => serde_json::from_slice(bytes)
                .map_err(|error| AverageError::io(&path)(error.into()))?,
            None => Map::new(),
        };
        Ok(Self { path, bytes, keys })
    }

    fn check_like(&self, first: &Self) -> Result<(), AverageError> {
        match first_difference(&first.keys, &self.keys) {
            None => Ok(()),
            Some(Difference { key, before, now }) => Err(AverageError::Different {
                path: self.path.clone(),
                name: key,
                found: or_absent(now.as_deref()).to_owned(),
                first: first.path.clone(),
                expected: or_absent(before.as_deref()).to_owned(),
            }),
        }
    }
}

/// The file of how models are to be decoded, of the first that has one: a checkpoint's is in the directory of its run.
fn options(models: &[&Path]) -> Result<Option<Vec<u8>>, AverageError> {
    for model in models {
        let directories = [Some(model.to_path_buf()), run_of_checkpoint(model)];
        for directory in directories.into_iter().flatten() {
            if let Some(options) = read_if_there(&directory.join(GENERATION_FILE))? {
                return Ok(Some(options));
            }
        }
    }
    Ok(None)
}

/// Names and contents of the tokenizers' files.
type TokenizerFiles = Vec<(&'static str, Vec<u8>)>;

/// The tokenizers of all models that have some.
fn common_tokenizers(models: &[&Path]) -> Result<TokenizerFiles, AverageError> {
    let mut common: Option<(PathBuf, TokenizerFiles)> = None;
    for model in models {
        let (home, files) = tokenizers(model)?;
        if files.is_empty() {
            continue;
        }
        let (first, expected) = common.get_or_insert_with(|| (home.clone(), files.clone()));
        if files != *expected {
            return Err(AverageError::OtherTokenizer {
                path: home,
                first: first.clone(),
            });
        }
    }
    Ok(common.map_or(Vec::new(), |(_, files)| files))
}

/// The tokenizers of a model, with their directory: a checkpoint's are in the directory of its run.
fn tokenizers(model: &Path) -> Result<(PathBuf, TokenizerFiles), AverageError> {
    let own = tokenizers_in(model)?;
    match run_of_checkpoint(model) {
        Some(run) if own.is_empty() => {
            let files = tokenizers_in(&run)?;
            Ok((run, files))
        }
        _ => Ok((model.to_owned(), own)),
    }
}

fn tokenizers_in(directory: &Path) -> Result<TokenizerFiles, AverageError> {
    let mut files = Vec::new();
    for name in TOKENIZER_FILES {
        if let Some(bytes) = read_if_there(&directory.join(name))? {
            files.push((name, bytes));
        }
    }
    Ok(files)
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, AverageError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AverageError::io(path)(error)),
    }
}

/// A file of the new model.
struct NewFile<'a> {
    path: PathBuf,
    content: Content<'a>,
}

enum Content<'a> {
    Bytes(Vec<u8>),
    Mean {
        first: &'a WeightsFile,
        others: &'a [WeightsFile],
    },
}

/// An error while a file is written: of that file, or of another one, which it names.
enum Failure {
    Here(io::Error),
    Named(AverageError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Here(error)
    }
}

impl From<AverageError> for Failure {
    fn from(error: AverageError) -> Self {
        Self::Named(error)
    }
}

/// Writes all files or none: each has been written before the first is renamed into place.
fn write_all(files: &[NewFile]) -> Result<(), AverageError> {
    let Some((file, rest)) = files.split_first() else {
        return Ok(());
    };
    let written = replace_file(&file.path, |side| -> Result<(), Failure> {
        match &file.content {
            Content::Bytes(bytes) => fs::write(side, bytes)?,
            Content::Mean { first, others } => write_mean(first, others, side)?,
        }
        Ok(write_all(rest)?)
    });
    written.map_err(|failure| match failure {
        Failure::Here(error) => AverageError::io(&file.path)(error),
        Failure::Named(error) => error,
    })
}

/// Writes the file of the means: it begins as the first one does, and has its tensors in that order.
fn write_mean(first: &WeightsFile, others: &[WeightsFile], path: &Path) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&first.start)?;
    for name in first.tensors.offset_keys() {
        file.write_all(&mean(&name, first, others)?)?;
    }
    Ok(file.flush()?)
}

/// The mean of a tensor, as bytes.
fn mean(name: &str, first: &WeightsFile, others: &[WeightsFile]) -> Result<Vec<u8>, AverageError> {
    let bytes = first.read(name)?;
    let Some(float) = Float::of(first.tensor(name).dtype) else {
        return Ok(bytes);
    };
    // Not from zero, which would make a sum of negative zeros positive.
    let mut sums = float.numbers(&bytes);
    for other in others {
        let numbers = float.numbers(&other.read(name)?);
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
    }
    let count = (1 + others.len()) as f64;
    for sum in &mut sums {
        *sum /= count;
    }
    Ok(float.bytes(&sums))
}

/// The types of numbers that are averaged.
#[derive(Clone, Copy)]
enum Float {
    F32,
    F64,
}

impl Float {
    fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F64 => Some(Self::F64),
            _ => None,
        }
    }

    fn numbers(self, bytes: &[u8]) -> Vec<f64> {
        match self {
            Self::F32 => {
                let (numbers, _) = bytes.as_chunks::<4>();
                let number = |bytes: &[u8; 4]| f64::from(f32::from_le_bytes(*bytes));
                numbers.iter().map(number).collect()
            }
            Self::F64 => {
                let (numbers, _) = bytes.as_chunks::<8>();
                let number = |bytes: &[u8; 8]| f64::from_le_bytes(*bytes);
                numbers.iter().map(number).collect()
            }
        }
    }

    fn bytes(self, numbers: &[f64]) -> Vec<u8> {
        match self {
            Self::F32 => {
                let bytes = |number: &f64| (*number as f32).to_le_bytes();
                numbers.iter().flat_map(bytes).collect()
            }
            Self::F64 => {
                let bytes = |number: &f64| number.to_le_bytes();
                numbers.iter().flat_map(bytes).collect()
            }
        }
    }
}

/// The weights of a model on the disk, of which one tensor is read at a time.
struct WeightsFile {
    path: PathBuf,
    file: File,
    /// The file up to its first tensor.
    start: Vec<u8>,
    tensors: Metadata,
}

/// Bytes before the header, which hold its length.
const LENGTH: usize = size_of::<u64>();

impl WeightsFile {
    fn open(model: &Path) -> Result<Self, AverageError> {
        let path = model.join(WEIGHTS_FILE);
        let file = File::open(&path).map_err(AverageError::io(&path))?;
        let (start, tensors) = read_start(&file).map_err(AverageError::io(&path))?;
        Ok(Self {
            path,
            file,
            start,
            tensors,
        })
    }

    /// Checks that the tensors are those of the first file, by name, type and shape, and those without a
    /// mean also by their numbers.
    fn check_like(&self, first: &Self) -> Result<(), AverageError> {
        let described = |tensor: Option<&TensorInfo>| match tensor {
            Some(TensorInfo { dtype, shape, .. }) => format!("{dtype} {shape:?}"),
            None => or_absent(None).to_owned(),
        };
        let mut names: BTreeSet<String> = first.tensors.offset_keys().into_iter().collect();
        names.extend(self.tensors.offset_keys());
        for name in names {
            let [found, expected] = [self, first].map(|file| described(file.tensors.info(&name)));
            if found != expected {
                return Err(AverageError::Different {
                    path: self.path.clone(),
                    name,
                    found,
                    first: first.path.clone(),
                    expected,
                });
            }
            let dtype = self.tensor(&name).dtype;
            if Float::of(dtype).is_none() && self.read(&name)? != first.read(&name)? {
                return Err(AverageError::NotAveraged {
                    path: self.path.clone(),
                    name,
                    dtype: dtype.to_string(),
                    first: first.path.clone(),
                });
            }
        }
        Ok(())
    }

    /// The description of a tensor that is there.
    fn tensor(&self, name: &str) -> &TensorInfo {
        let tensor = self.tensors.info(name);
        tensor.expect("all files have been checked to have the same tensors")
    }

    /// The bytes of a tensor that is there.
    fn read(&self, name: &str) -> Result<Vec<u8>, AverageError> {
        let (begin, end) = self.tensor(name).data_offsets;
        let mut bytes = vec![0; end - begin];
        let mut file = &self.file;
        file.seek(SeekFrom::Start((self.start.len() + begin) as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(AverageError::io(&self.path))?;
        Ok(bytes)
    }
}

/// Reads a file up to its first tensor: the length of the header, and the header, which describes the
/// tensors. Their bytes have been checked to fill the rest of the file.
fn read_start(mut file: &File) -> io::Result<(Vec<u8>, Metadata)> {
    let damaged = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let size = file.metadata()?.len();
    let Some(rest) = size.checked_sub(LENGTH as u64) else {
        return Err(damaged(format!("{size} bytes are no safetensors file")));
    };
    let mut length = [0; LENGTH];
    file.read_exact(&mut length)?;
    let header = u64::from_le_bytes(length);
    // Checked before anything is allocated: a damaged length can be any number.
    let Some(data) = rest.checked_sub(header) else {
        let problem = format!("{size} bytes, but a header of {header} bytes");
        return Err(damaged(problem));
    };
    let mut start = length.to_vec();
    file.take(header).read_to_end(&mut start)?;
    let tensors: Metadata = serde_json::from_slice(&start[LENGTH..])
        .map_err(|error| damaged(format!("not the header of a safetensors file: {error}")))?;
    let described = tensors.data_len() as u64;
    if described != data {
        let problem = format!("{data} bytes of tensors, but the header describes {described}");
        return Err(damaged(problem));
    }
    Ok((start, tensors))
}
