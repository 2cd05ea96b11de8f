//! Models as directories: `config.json` and `model.safetensors`, beside the files of tokenizers.
//!
//! Each parameter is stored in single precision under its path in the module, matrices as
//! `[d_input, d_output]`; tied ones are stored once.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{BoolStore, DType, TensorData};
use burn_store::{ModuleSnapshot, ModuleStore, SafetensorsStore, SafetensorsStoreError};
use serde::Serialize;

use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::files::{replace_file, system_error};
use crate::formats::fill::{Readable, fill};
use crate::formats::own::config::{
    CONFIG_FILE, FORMAT, LANGUAGE_MODEL, TRANSFORMER, is_of_hugging_face, is_quantized, to_json,
};
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::StoredTensor;
use crate::formats::weights::{WeightFiles, check_matched, take};
use crate::models::config::TransformerConfig;
use crate::models::language_model::LanguageModel;
use crate::models::transformer::Transformer;
use crate::nn::error::ConfigError;
use crate::nn::init::WeightInit;

/// The weights' file in a model directory.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// The folder of a run's checkpoints, in the run's directory.
const CHECKPOINTS: &str = "checkpoints";

/// The directory of the run that a checkpoint (`run/checkpoints/update-…`) belongs to; `None` for other
/// directories.
pub fn run_of_checkpoint(directory: impl AsRef<Path>) -> Option<PathBuf> {
    // Resolved, because a path such as `.` does not say where it is.
    let directory = directory.as_ref().canonicalize().ok()?;
    let below = directory.parent()?;
    let run = below.parent()?;
    (below.file_name()? == CHECKPOINTS).then(|| run.to_owned())
}

/// Writes every parameter of a module into a `.safetensors` file, under its path in the module. The
/// file's folder is created if missing. Floating-point numbers are stored in single precision; integers and booleans in
/// the backend's type, and a backend with another type does not load them.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn_ndarray::NdArray;
/// use transformer_core::{load_weights, save_weights};
///
/// # fn main() -> Result<(), transformer_core::ModelError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("linear.safetensors");
/// let device = Default::default();
/// let saved = LinearConfig::new(2, 3).init::<NdArray>(&device);
/// save_weights(&saved, &path)?;
///
/// let loaded = load_weights(LinearConfig::new(2, 3).init::<NdArray>(&device), &path)?;
/// assert_eq!(loaded.weight.to_data(), saved.weight.to_data());
///
/// let error = load_weights(LinearConfig::new(2, 4).init::<NdArray>(&device), &path).unwrap_err();
/// assert!(error.to_string().contains("weight"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the file cannot be written; an older one then stays as it was.
pub fn save_weights<B: Backend, M: Module<B>>(
    module: &M,
    path: impl AsRef<Path>,
) -> Result<(), ModelError> {
    let path = path.as_ref();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(ModelError::io(folder))?;
    }
    replace_file(path, |side| write_weights(module, side)).map_err(ModelError::io(path))
}

/// Fills a module with the parameters in a `.safetensors` file.
///
/// Each parameter stays on its device and keeps its gradient setting: one that is frozen
/// ([`Module::no_grad`], [`Param::set_require_grad`](burn::module::Param::set_require_grad)) stays
/// frozen.
///
/// # Errors
/// When the file is missing or damaged, or holds other tensors than the module has: then one error names those that
/// are missing, unknown, or of another type or shape, up to eight, and says how many more there are.
pub fn load_weights<B: Backend, M: Module<B>>(
    mut module: M,
    path: impl AsRef<Path>,
) -> Result<M, ModelError> {
    let path = path.as_ref();
    let dict = StateDict::read_safetensors(path).map_err(|error| error.into_model(path))?;
    let parameters = own_tensors(&module, dict);
    let parameters = parameters.map_err(|problems| ModelError::tensors(path, problems))?;
    fill(&mut module, parameters).map_err(|problem| ModelError::Weights {
        path: path.to_owned(),
        problem,
    })?;
    Ok(module)
}

impl<B: Backend> Transformer<B> {
    /// Writes the model into a directory, which is created if missing.
    ///
    /// # Errors
    /// When a file cannot be written; an older one then stays as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        save_model(self, TRANSFORMER, self.config(), directory.as_ref())
    }

    /// Reads a model from a directory: ours, or one of Hugging Face's as it is, of type `marian`, `m2m_100`, `bart` or
    /// `mbart`. On a backend with gradients (`Autodiff`), the model can be trained further.
    ///
    /// Hugging Face's weights may be in `model.safetensors` or in `pytorch_model.bin`, whole or in parts, in single
    /// or in half precision. They are read tensor by tensor; no code in a file is executed. Weights in 8 bits
    /// ([`quantize`](crate::quantize)) are converted to floating point.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the weights are not the configuration's: then one error names the tensors
    /// that are missing, unknown, or of another type or shape, up to eight, and says how many more there are. When a
    /// key of Hugging Face's asks for a model that ours cannot be.
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, ModelError> {
        WeightFiles::open(directory.as_ref())?.load(device)
    }

    /// The model with the weights of a directory that [`load`](Self::load) can read. The two configurations may differ
    /// in settings without weights, such as dropout.
    ///
    /// # Errors
    /// As [`load`](Self::load), and when the weights are not those of this model.
    pub fn with_weights_of(mut self, directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        WeightFiles::open(directory.as_ref())?.fill(&mut self)?;
        Ok(self)
    }
}

impl<B: Backend> LanguageModel<B> {
    /// Writes the model into a directory, which is created if missing.
    ///
    /// # Errors
    /// When a file cannot be written; an older one then stays as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        save_model(self, LANGUAGE_MODEL, self.config(), directory.as_ref())
    }

    /// Reads a model from a directory.
    ///
    /// # Errors
    /// As [`Transformer::load`].
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, ModelError> {
        let directory = directory.as_ref();
        let config = TransformerConfig::load_language_model(directory)?;
        load_model(directory, config.size(), || {
            config.init_language_model_from(&mut WeightInit::zeros(), device)
        })
    }
}

impl TransformerConfig {
    /// Checks that the directory that this configuration was loaded from has the model's weights, without reading their
    /// numbers. [`load`](Self::load) has checked those of a directory of Hugging Face's.
    ///
    /// # Errors
    /// When their file is missing or far too small; in 8 bits, also when their names, types or shapes are not the
    /// configuration's.
    pub fn check_weights(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        let directory = directory.as_ref();
        if is_of_hugging_face(directory)? {
            Ok(())
        } else if is_quantized(directory)? {
            WeightFiles::open(directory).map(drop)
        } else {
            file_of_weights(directory, self.size(), size_of::<f32>()).map(drop)
        }
    }

    /// How large its model is.
    pub(crate) fn size(&self) -> ModelSize {
        ModelSize {
            parameters: self.num_params(),
            layers: self.n_encoder_layers.saturating_add(self.n_decoder_layers),
        }
    }
}

/// How large a model is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelSize {
    /// All numbers.
    pub parameters: u128,
    /// The layers of all stacks.
    pub layers: usize,
}

/// Writes configuration and weights; if either fails, an older pair stays as it was.
fn save_model<B: Backend, M: Module<B>>(
    model: &M,
    kind: &str,
    config: &impl Serialize,
    directory: &Path,
) -> Result<(), ModelError> {
    fs::create_dir_all(directory).map_err(ModelError::io(directory))?;
    save_files(FORMAT, kind, config, directory, |side| {
        write_weights(model, side)
    })
}

/// Writes the configuration, and the weights by `write`, into a directory that exists; if either fails, an older pair
/// stays as it was.
pub(crate) fn save_files(
    format: u64,
    kind: &str,
    config: &impl Serialize,
    directory: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), ModelError> {
    let config_path = directory.join(CONFIG_FILE);
    let weights_path = directory.join(WEIGHTS_FILE);
    let json = to_json(format, kind, config, &config_path)?;
    // Both are on the disk before either replaces an older file.
    let at_work = Cell::new(&config_path);
    replace_file(&config_path, |side| -> io::Result<()> {
        fs::write(side, json)?;
        at_work.set(&weights_path);
        replace_file(&weights_path, write)?;
        at_work.set(&config_path);
        Ok(())
    })
    .map_err(|source| ModelError::io(at_work.get())(source))
}

/// Builds a model of this size, and fills it with the weights of a directory.
fn load_model<B: Backend, M: Module<B>>(
    directory: &Path,
    size: ModelSize,
    build: impl FnOnce() -> Result<M, ConfigError>,
) -> Result<M, ModelError> {
    // Before anything is allocated: a damaged configuration can ask for any size.
    let path = file_of_weights(directory, size, size_of::<f32>())?;
    let model = build().map_err(|source| ModelError::Config {
        path: directory.join(CONFIG_FILE),
        source,
    })?;
    load_weights(model, path)
}

/// The file of weights in a directory, if it can hold a model of this size, at this many bytes or more for a number.
pub(crate) fn file_of_weights(
    directory: &Path,
    model: ModelSize,
    bytes: usize,
) -> Result<PathBuf, ModelError> {
    let path = directory.join(WEIGHTS_FILE);
    let size = fs::metadata(&path).map_err(ModelError::io(&path))?.len();
    let needed = model.parameters * bytes as u128;
    if u128::from(size) + SLACK < needed {
        let problem = format!("{size} bytes, but the configuration has {needed} bytes of weights");
        return Err(ModelError::Weights { path, problem });
    }
    let layers = model.layers as u64;
    if size / LEAST_OF_LAYER + LAYERS_SLACK < layers {
        let problem = format!("{size} bytes, but the configuration has {layers} layers");
        return Err(ModelError::Weights { path, problem });
    }
    Ok(path)
}

/// A file that is too short by at most these bytes is read, so that its missing tensors are named.
const SLACK: u128 = 1 << 24;
/// Bytes of a layer in a file, at least. A layer of a few numbers takes a thousand times as much in memory.
const LEAST_OF_LAYER: u64 = 1 << 9;
/// A file that lacks at most these layers is read for the same reason.
const LAYERS_SLACK: u64 = 1000;

fn write_weights<B: Backend, M: Module<B>>(module: &M, path: &Path) -> io::Result<()> {
    // One entry: several would be written in an order that changes from run to run.
    let mut store = SafetensorsStore::from_file(path)
        .overwrite(true)
        .clear_metadata()
        .metadata("format", "burn");
    store.collect_from(module).map_err(|error| match error {
        SafetensorsStoreError::Io(error) => error,
        SafetensorsStoreError::Safetensors(error) => system_error(error),
        error => io::Error::other(error),
    })
}

/// The parameters of a module, each with its tensor in a file of ours, which has no others.
///
/// # Errors
/// The tensors that are missing, unknown, or of another type or shape.
fn own_tensors<B: Backend, M: Module<B>>(
    module: &M,
    mut dict: StateDict,
) -> Result<Vec<OwnTensor>, Vec<TensorProblem>> {
    let mut tensors = Vec::new();
    let mut problems = Vec::new();
    for parameter in module.collect(None, None, false) {
        let path = parameter.full_path();
        let dtype = match parameter.dtype {
            DType::Bool(_) => DType::Bool(BoolStore::Native),
            dtype if dtype.is_float() => DType::F32,
            dtype => dtype,
        };
        match take(&mut dict.tensors, &path, &parameter.shape, dtype.into()) {
            Ok(tensor) => tensors.push(OwnTensor {
                path,
                dtype,
                tensor,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    check_matched(dict, problems)?;
    Ok(tensors)
}

/// A parameter of a module, in a file of ours.
struct OwnTensor {
    path: String,
    /// The type of its numbers in the file.
    dtype: DType,
    tensor: StoredTensor,
}

impl Readable for OwnTensor {
    fn path(&self) -> &str {
        &self.path
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn read(&self) -> Result<TensorData, TensorProblem> {
        let bytes = self.tensor.bytes();
        let bytes = bytes.map_err(|error| TensorProblem::unreadable(&self.path, &error))?;
        // Burn trusts a byte to be a boolean.
        if let Some(byte) = bytes.iter().find(|&&byte| byte > 1)
            && self.dtype.is_bool()
        {
            return Err(TensorProblem::Number {
                name: self.path.clone(),
                found: byte.to_string(),
                rule: "a boolean is 0 or 1",
            });
        }
        let shape = self.tensor.shape.clone();
        Ok(TensorData::from_bytes_vec(bytes, shape, self.dtype))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_below_its_run() {
        let run = tempfile::tempdir().unwrap();
        let checkpoint = run.path().join("checkpoints/update-00000004");
        fs::create_dir_all(&checkpoint).unwrap();
        let expected = run.path().canonicalize().unwrap();
        assert_eq!(run_of_checkpoint(&checkpoint), Some(expected));
        for other in [run.path(), &run.path().join("none")] {
            assert_eq!(run_of_checkpoint(other), None);
        }
    }
}
