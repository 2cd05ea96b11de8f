//! Models as directories: `config.json` and `model.safetensors`, beside the files of tokenizers.
//!
//! Each parameter is stored in single precision under its path in the module, matrices as
//! `[d_input, d_output]`; tied ones are stored once.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{BoolStore, DType, TensorData};
use burn_store::{ModuleSnapshot, ModuleStore, SafetensorsStore, SafetensorsStoreError};
use serde::Serialize;

use crate::formats::directory::ModelDirectory;
use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::files::{replace_file, system_error};
use crate::formats::fill::{Readable, fill};
use crate::formats::names::{CONFIG_FILE, WEIGHTS_FILE};
use crate::formats::own::config::{FORMAT, LANGUAGE_MODEL, TRANSFORMER, to_json};
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::{ElementType, StoredTensor};
use crate::models::config::TransformerConfig;
use crate::models::language_model::LanguageModel;
use crate::models::transformer::Transformer;

/// Writes every parameter of a module into a `.safetensors` file, under its path in the module. The
/// file's folder is created if missing. Floating-point numbers are stored in single precision; integers and booleans in
/// the backend's type, and a backend with another type does not load them.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn_ndarray::NdArray;
/// use transformer_core::formats::{load_weights, save_weights};
///
/// # fn main() -> Result<(), transformer_core::formats::ModelError> {
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

    /// Reads the model of a directory ([`ModelDirectory`]). On a backend with gradients (`Autodiff`), it can be trained
    /// further.
    ///
    /// # Errors
    /// As [`ModelDirectory::open`] and [`ModelDirectory::transformer`].
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, ModelError> {
        ModelDirectory::open(&directory)?.transformer(device)
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

    /// Reads the model of a directory.
    ///
    /// # Errors
    /// As [`ModelDirectory::open`] and [`ModelDirectory::language_model`].
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, ModelError> {
        ModelDirectory::open(&directory)?.language_model(device)
    }
}

impl TransformerConfig {
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

/// Checks that no tensor of a file is left, after its tensors were taken with these problems.
///
/// # Errors
/// All problems, in alphabetical order.
pub(crate) fn check_matched(
    rest: StateDict,
    mut problems: Vec<TensorProblem>,
) -> Result<(), Vec<TensorProblem>> {
    let unknown = |name| TensorProblem::Unknown { name };
    problems.extend(rest.tensors.into_keys().map(unknown));
    let not_a_tensor = |name| TensorProblem::NotATensor { name };
    problems.extend(rest.others.into_iter().map(not_a_tensor));
    match problems.is_empty() {
        true => Ok(()),
        false => {
            problems.sort_by_cached_key(ToString::to_string);
            Err(problems)
        }
    }
}

/// Takes a tensor from those of a file.
///
/// # Errors
/// When it is missing, or of another type or shape.
pub(crate) fn take(
    tensors: &mut BTreeMap<String, StoredTensor>,
    name: &str,
    shape: &[usize],
    element: ElementType,
) -> Result<StoredTensor, TensorProblem> {
    let name = name.to_owned();
    let Some(tensor) = tensors.remove(&name) else {
        return Err(TensorProblem::Missing { name });
    };
    if tensor.element != element {
        return Err(TensorProblem::OtherType {
            name,
            found: tensor.element.name().to_owned(),
            expected: element.name().to_owned(),
        });
    }
    if tensor.shape != shape {
        return Err(TensorProblem::Shape {
            name,
            found: tensor.shape,
            expected: shape.to_vec(),
        });
    }
    Ok(tensor)
}
