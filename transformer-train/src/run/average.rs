//! Checkpoint averaging (§6.1): one model whose weights are the means of several models' weights.
//!
//! It works on the files of model directories, for any type of model: weights in `model.safetensors`, or in the
//! other files of Hugging Face directories.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use burn::tensor::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use serde_json::{Map, Value};
use transformer_core::formats::{
    CONFIG_FILE, Files, GENERATION_FILE, StoredWeights, TensorKind, WEIGHTS_FILE, replace_file,
};

use crate::error::{AverageError, Difference, first_difference, or_absent};
use crate::files;
use crate::run::checkpoints::{RUN_FILE, holds_model, whole_checkpoints};
use crate::run::scheduled::Scheduled;

/// The newest `count` checkpoints of the run in a directory, oldest first.
///
/// Older checkpoints kept for their validations ([`TrainingConfig::keep_best`](crate::TrainingConfig::keep_best))
/// are not included: between them and the newest, others are missing.
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

/// The last checkpoints of the run in a directory, oldest first, as recorded by the newest one.
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
        let json = match files::read(&path) {
            // Older versions wrote no record.
            Err(error) if error.kind() == io::ErrorKind::NotFound => b"{}".to_vec(),
            read => read.map_err(AverageError::io(&path))?,
        };
        let record: Record =
            serde_json::from_slice(&json).map_err(|error| AverageError::io(&path)(error.into()))?;
        let updates: Vec<_> = all.iter().map(|(update, _)| *update).collect();
        let last = record.scheduled.last(newest, &updates, updates.len());
        all.retain(|(update, _)| last.contains(update));
    }
    Ok(all.into_iter().map(|(_, path)| path).collect())
}

/// Averages models into a new one: each weight is the mean of its values in all models (§6.1).
///
/// The paper averages the last 5 checkpoints of a base model, and the last 20 of a big one:
///
/// ```no_run
/// use transformer_train::run::{average_models, newest_checkpoints};
///
/// # fn main() -> Result<(), transformer_train::run::AverageError> {
/// average_models(&newest_checkpoints("model", 5)?, "averaged")?;
/// # Ok(())
/// # }
/// ```
///
/// `models` are directories of models or checkpoints, all of one type of model, ours or Hugging Face's; a
/// directory given twice counts twice. `out`, which is created if missing, gets their configuration, their weights
/// in `model.safetensors`, their tokenizers and the first model's `generation_config.json`; for a checkpoint, the
/// last two are those of its run. The average of one model is that model, bit for bit, if its weights are in 32 or
/// 64 bits.
///
/// Weights are summed in 64 bits. 16-bit weights are written in 32 bits, and a Hugging Face configuration then
/// says so. Tensors of other types, such as tables of indices, are not averaged and must be the same in all
/// models. Memory holds one tensor and its sum at a time.
///
/// # Errors
/// When there is no model, when `out` already holds one, when the models differ in their configurations, in the
/// names, shapes or types of their tensors, or in their tokenizers, or when a file is damaged or cannot be read or
/// written. In each case, no file in `out` has changed.
pub fn average_models<P: AsRef<Path>>(
    models: &[P],
    out: impl AsRef<Path>,
) -> Result<(), AverageError> {
    let out = out.as_ref();
    if holds_model(out) {
        return Err(AverageError::Occupied(out.to_owned()));
    }
    let models = models
        .iter()
        .map(Files::of)
        .collect::<Result<Vec<_>, _>>()?;
    let weights = models
        .iter()
        .map(StoredWeights::of)
        .collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = weights.split_first() else {
        return Err(AverageError::NoModel);
    };
    let config = common_config(&models)?;
    let tokenizers = common_tokenizers(&models)?;
    let options = options(&models)?;
    let tensors = tensors(first)?;
    for other in others {
        check_like(first, &tensors, other)?;
    }
    let config = match tensors.iter().any(|tensor| tensor.is_in_half()) {
        true => config.map(in_single_precision),
        false => config.map(|config| config.bytes),
    };

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
        content: Content::Mean {
            first,
            others,
            tensors: &tensors,
        },
    });
    write_all(&files)
}

/// The configuration shared by all models, from the first one's file; `None` if they have none.
fn common_config(models: &[Files]) -> Result<Option<ConfigFile>, AverageError> {
    let mut first: Option<Config> = None;
    for model in models {
        let config = Config::of(model)?;
        match &first {
            None => first = Some(config),
            Some(first) => config.check_like(first)?,
        }
    }
    Ok(first.and_then(|first| first.file))
}

/// A model's configuration; a module without one has no file.
struct Config {
    path: PathBuf,
    file: Option<ConfigFile>,
}

struct ConfigFile {
    bytes: Vec<u8>,
    keys: Map<String, Value>,
}

/// Hugging Face keys that tell a model's origin, and nothing about the model.
const ORIGIN_KEYS: [&str; 2] = ["_name_or_path", "transformers_version"];

/// Hugging Face keys for the type of the weights, in older and newer versions.
const DTYPE_KEYS: [&str; 2] = ["torch_dtype", "dtype"];

impl Config {
    fn of(model: &Files) -> Result<Self, AverageError> {
        let path = model.path(CONFIG_FILE);
        let read = |text: &str| -> Result<ConfigFile, AverageError> {
            let keys = serde_json::from_str(text);
            Ok(ConfigFile {
                keys: keys.map_err(|error| AverageError::io(&path)(error.into()))?,
                bytes: text.into(),
            })
        };
        let file = model.config().map(read).transpose()?;
        Ok(Self { path, file })
    }

    /// The keys that describe the model.
    fn keys(&self) -> Map<String, Value> {
        let keys = self.file.as_ref().map(|file| file.keys.clone());
        let mut keys = keys.unwrap_or_default();
        keys.retain(|key, _| !ORIGIN_KEYS.contains(&key.as_str()));
        keys
    }

    fn check_like(&self, first: &Self) -> Result<(), AverageError> {
        match first_difference(&first.keys(), &self.keys()) {
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

/// The file of a configuration, changed to single-precision weights.
fn in_single_precision(config: ConfigFile) -> Vec<u8> {
    let mut keys = config.keys;
    let present = DTYPE_KEYS.into_iter().filter(|&key| keys.contains_key(key));
    let present: Vec<_> = present.collect();
    if present.is_empty() {
        return config.bytes;
    }
    for key in present {
        keys.insert(key.to_owned(), Value::from("float32"));
    }
    format!("{:#}\n", Value::Object(keys)).into_bytes()
}

/// The file of decoding options, from the first model that has one.
fn options(models: &[Files]) -> Result<Option<Vec<u8>>, AverageError> {
    let read = |model: &Files| model.read(GENERATION_FILE).transpose();
    Ok(models.iter().find_map(read).transpose()?)
}

/// Names and contents of the tokenizer files.
type TokenizerFiles = Vec<(&'static str, Vec<u8>)>;

/// The tokenizers shared by all models that have any.
fn common_tokenizers(models: &[Files]) -> Result<TokenizerFiles, AverageError> {
    let mut common: Option<(&Path, TokenizerFiles)> = None;
    for model in models {
        let files = model.read_tokenizers()?;
        if files.is_empty() {
            continue;
        }
        let home = model.tokenizers().unwrap_or(model.directory());
        let (first, expected) = common.get_or_insert_with(|| (home, files.clone()));
        if files != *expected {
            return Err(AverageError::OtherTokenizer {
                path: home.to_owned(),
                first: first.to_owned(),
            });
        }
    }
    Ok(common.map_or(Vec::new(), |(_, files)| files))
}

/// A file of the new model.
struct NewFile<'a> {
    path: PathBuf,
    content: Content<'a>,
}

enum Content<'a> {
    Bytes(Vec<u8>),
    Mean {
        first: &'a StoredWeights,
        others: &'a [StoredWeights],
        tensors: &'a [Tensor],
    },
}

/// An error while a file is written: about that file, or about another file, which it names.
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
            Content::Mean {
                first,
                others,
                tensors,
            } => write_mean(first, others, tensors, side)?,
        }
        Ok(write_all(rest)?)
    });
    written.map_err(|failure| match failure {
        Failure::Here(error) => AverageError::io(&file.path)(error),
        Failure::Named(error) => error,
    })
}

/// A tensor of the models.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Tensor {
    fn is_in_half(&self) -> bool {
        matches!(self.dtype, Dtype::F16 | Dtype::BF16)
    }

    fn has_mean(&self) -> bool {
        numbers(self.dtype, &[]).is_some()
    }

    /// The type in which the mean is written.
    fn written(&self) -> Dtype {
        match self.is_in_half() {
            true => Dtype::F32,
            false => self.dtype,
        }
    }
}

/// The tensors of a model in the order in which the safetensors library writes them.
fn tensors(weights: &StoredWeights) -> Result<Vec<Tensor>, AverageError> {
    let mut tensors = Vec::new();
    for name in weights.names() {
        let Some(TensorKind { dtype, shape }) = weights.kind(name) else {
            continue;
        };
        let dtype = serde_json::from_value(Value::from(dtype))
            .map_err(|error| AverageError::io(weights.path())(error.into()))?;
        tensors.push(Tensor {
            name: name.to_owned(),
            dtype,
            shape,
        });
    }
    // Stable: within a type, tensors stay sorted by name.
    tensors.sort_by_key(|tensor| Reverse(tensor.written()));
    Ok(tensors)
}

/// Checks that a model has the first model's tensors, with equal names, types and shapes, and equal values where
/// the type is not averaged.
fn check_like(
    first: &StoredWeights,
    tensors: &[Tensor],
    other: &StoredWeights,
) -> Result<(), AverageError> {
    let names: BTreeSet<&str> = first.names().chain(other.names()).collect();
    for name in names {
        let [found, expected] = [other, first].map(|weights| weights.kind(name));
        if found != expected {
            let described = |kind: Option<TensorKind>| match kind {
                Some(kind) => kind.to_string(),
                None => or_absent(None).to_owned(),
            };
            return Err(AverageError::Different {
                path: other.path().to_owned(),
                name: name.to_owned(),
                found: described(found),
                first: first.path().to_owned(),
                expected: described(expected),
            });
        }
    }
    for tensor in tensors.iter().filter(|tensor| !tensor.has_mean()) {
        let name = &tensor.name;
        if other.bytes(name)? != first.bytes(name)? {
            return Err(AverageError::NotAveraged {
                path: other.path().to_owned(),
                name: name.clone(),
                dtype: tensor.dtype.to_string(),
                first: first.path().to_owned(),
            });
        }
    }
    Ok(())
}

/// Writes the file of averaged weights.
fn write_mean(
    first: &StoredWeights,
    others: &[StoredWeights],
    tensors: &[Tensor],
    path: &Path,
) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(path)?);
    let header = header(tensors, first.format())?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for tensor in tensors {
        file.write_all(&mean(tensor, first, others)?)?;
    }
    Ok(file.flush()?)
}

/// The header of a safetensors file, padded so that the data is aligned.
fn header(tensors: &[Tensor], format: Option<&str>) -> io::Result<Vec<u8>> {
    let mut infos = Vec::with_capacity(tensors.len());
    let mut end = 0;
    for tensor in tensors {
        let (start, dtype) = (end, tensor.written());
        end += tensor.shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let info = TensorInfo {
            dtype,
            shape: tensor.shape.clone(),
            data_offsets: (start, end),
        };
        infos.push((tensor.name.clone(), info));
    }
    let format = format.map(|format| HashMap::from([("format".to_owned(), format.to_owned())]));
    let header = Metadata::new(format, infos).map_err(io::Error::other)?;
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    Ok(header)
}

/// The header's length is a multiple of this many bytes.
const ALIGNMENT: usize = 8;

/// The mean of a tensor, as bytes.
fn mean(
    tensor: &Tensor,
    first: &StoredWeights,
    others: &[StoredWeights],
) -> Result<Vec<u8>, AverageError> {
    let bytes = first.bytes(&tensor.name)?;
    // Starting from zero would make a sum of negative zeros positive.
    let Some(mut sums) = numbers(tensor.dtype, &bytes) else {
        return Ok(bytes);
    };
    for other in others {
        let numbers = numbers(tensor.dtype, &other.bytes(&tensor.name)?).unwrap_or_default();
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
    }
    let count = (1 + others.len()) as f64;
    let means = sums.iter().map(|sum| sum / count);
    Ok(match tensor.written() {
        Dtype::F64 => means.flat_map(f64::to_le_bytes).collect(),
        _ => means.flat_map(|mean| (mean as f32).to_le_bytes()).collect(),
    })
}

/// Values as f64; `None` if their type is not averaged.
fn numbers(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    let (halves, _) = bytes.as_chunks::<2>();
    let (singles, _) = bytes.as_chunks::<4>();
    let (doubles, _) = bytes.as_chunks::<8>();
    let halves = halves.iter().copied();
    let singles = singles.iter().copied();
    Some(match dtype {
        Dtype::F16 => halves
            .map(|half| f16::from_le_bytes(half).to_f64())
            .collect(),
        Dtype::BF16 => halves
            .map(|half| bf16::from_le_bytes(half).to_f64())
            .collect(),
        Dtype::F32 => singles
            .map(|single| f64::from(f32::from_le_bytes(single)))
            .collect(),
        Dtype::F64 => doubles.iter().copied().map(f64::from_le_bytes).collect(),
        _ => return None,
    })
}
