//! Model directories: `config.json` and `model.safetensors`, beside the tokenizer files.
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

/// Writes all parameters of a module to a `.safetensors` file, under their paths in the module. The file's folder is
/// created if missing. Floating-point values are stored in single precision, integers and booleans in the backend's
/// type; a backend with another type cannot load them.
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
/// When the file cannot be written; an existing one is then unchanged.
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
/// Each parameter keeps its device and gradient setting: frozen ones ([`Module::no_grad`],
/// [`Param::set_require_grad`](burn::module::Param::set_require_grad)) stay frozen.
///
/// # Errors
/// When the file is missing or damaged, or its tensors do not match the module. One error then names up to eight
/// tensors that are missing, unknown, or of the wrong type or shape, and the number of others.
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
    /// Saves the model to a directory, which is created if missing.
    ///
    /// # Errors
    /// When a file cannot be written; an existing one is then unchanged.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        save_model(self, TRANSFORMER, self.config(), directory.as_ref())
    }

    /// Loads the model of a directory ([`ModelDirectory`]). On an `Autodiff` backend, it can be trained further.
    ///
    /// # Errors
    /// As [`ModelDirectory::open`] and [`ModelDirectory::transformer`].
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, ModelError> {
        ModelDirectory::open(&directory)?.transformer(device)
    }
}

impl<B: Backend> LanguageModel<B> {
    /// Saves the model to a directory, which is created if missing.
    ///
    /// # Errors
    /// When a file cannot be written; an existing one is then unchanged.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        save_model(self, LANGUAGE_MODEL, self.config(), directory.as_ref())
    }

    /// Loads the model of a directory.
    ///
    /// # Errors
    /// As [`ModelDirectory::open`] and [`ModelDirectory::language_model`].
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, ModelError> {
        ModelDirectory::open(&directory)?.language_model(device)
    }
}

impl TransformerConfig {
    /// The size of the model.
    pub(crate) fn size(&self) -> ModelSize {
        ModelSize {
            parameters: self.num_params(),
            layers: self.n_encoder_layers.saturating_add(self.n_decoder_layers),
        }
    }
}

/// The size of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelSize {
    /// Number of values of all parameters.
    pub parameters: u128,
    /// Number of layers of all stacks.
    pub layers: usize,
}

/// Writes configuration and weights; if either fails, existing files are unchanged.
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

/// Writes the configuration, and the weights by `write`, to an existing directory; if either fails, existing files are
/// unchanged.
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
    // Both are on disk before either replaces an existing file.
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

/// The weights file of a directory, if it can hold a model of this size at `bytes` or more per value.
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

/// A file that is at most this many bytes too short is still read, so that the error can name its missing tensors.
const SLACK: u128 = 1 << 24;
/// Minimum bytes of a layer in a file. A layer of a few values takes a thousand times as much in memory.
const LEAST_OF_LAYER: u64 = 1 << 9;
/// A file that lacks at most this many layers is read for the same reason.
const LAYERS_SLACK: u64 = 1000;

fn write_weights<B: Backend, M: Module<B>>(module: &M, path: &Path) -> io::Result<()> {
    // A single entry: the order of several would change from run to run.
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

/// Matches the parameters of a module with the tensors of one of our files, which must have no others.
///
/// # Errors
/// The tensors that are missing, unknown, or of the wrong type or shape.
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

/// A module's parameter in one of our files.
struct OwnTensor {
    path: String,
    /// The element type in the file.
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
        // Burn does not check that a byte is a boolean.
        if let Some(byte) = bytes.iter().find(|&&byte| byte > 1)
            && self.dtype.is_bool()
        {
            return Err(TensorProblem::Number {
                name: self.path.clone(),
                found: byte.to_string(),
                rule: "a boolean must be 0 or 1",
            });
        }
        let shape = self.tensor.shape.clone();
        Ok(TensorData::from_bytes_vec(bytes, shape, self.dtype))
    }
}

/// Adds the tensors left over in a file to the problems, and checks that there are none.
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

/// Removes and returns a tensor of a file.
///
/// # Errors
/// When it is missing, or of the wrong type or shape.
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
