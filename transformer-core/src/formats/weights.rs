//! The weights of a [`Transformer`] in a model directory, to be read one parameter at a time: ours, in single precision or
//! in 8 bits, or Hugging Face's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use burn::tensor::backend::Backend;

use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::fill::{Readable, fill};
use crate::formats::hugging_face;
use crate::formats::name_map::Import;
use crate::formats::own::config::{CONFIG_FILE, is_of_hugging_face, is_quantized};
use crate::formats::own::quantized::QuantizedMatrix;
use crate::formats::own::weights::file_of_weights;
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::{ElementType, StoredTensor};
use crate::models::config::TransformerConfig;
use crate::models::transformer::Transformer;
use crate::nn::init::WeightInit;
use crate::nn::parameters::Parameter;

/// A directory whose tensors are those of its configuration, by name, type and shape. Their numbers are left in the
/// files.
pub(crate) struct WeightFiles {
    pub config: TransformerConfig,
    /// The file of the configuration.
    config_path: PathBuf,
    /// The file that names the tensors.
    path: PathBuf,
    /// By their paths in the module.
    parameters: BTreeMap<String, StoredParameter>,
}

/// A parameter in a file.
pub(crate) enum StoredParameter {
    /// In single precision; Hugging Face's also in half.
    Floats(Import),
    /// In 8 bits.
    Quantized(QuantizedMatrix),
}

impl WeightFiles {
    /// Opens a directory.
    ///
    /// # Errors
    /// When a file is missing or damaged, the configuration contradicts itself or asks for a model that ours cannot be,
    /// or the tensors are not those of the configuration.
    pub fn open(directory: &Path) -> Result<Self, ModelError> {
        let config_path = directory.join(CONFIG_FILE);
        if is_of_hugging_face(directory)? {
            let directory = hugging_face::Directory::open(directory)?;
            let imports = directory.imports()?.into_iter();
            let parameters = imports.map(StoredParameter::Floats);
            return Ok(Self {
                parameters: parameters.map(|own| (own.path().to_owned(), own)).collect(),
                config: directory.config,
                config_path,
                path: directory.path,
            });
        }
        let config = TransformerConfig::load(directory)?;
        let is_quantized = is_quantized(directory)?;
        let bytes = match is_quantized {
            true => size_of::<i8>(),
            false => size_of::<f32>(),
        };
        let path = file_of_weights(directory, config.size(), bytes)?;
        let dict = StateDict::read_safetensors(&path).map_err(|error| error.into_model(&path))?;
        // A file has at most as many layers as tensors, so that one more is certainly missing from it.
        let parameters = config.parameters(dict.tensors.len() + 1);
        match matched(parameters, dict, is_quantized) {
            Ok(parameters) => Ok(Self {
                config,
                config_path,
                path,
                parameters,
            }),
            Err(problems) => Err(ModelError::tensors(&path, problems)),
        }
    }

    /// The model, with weights in 8 bits converted to floating point.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub fn load<B: Backend>(self, device: &B::Device) -> Result<Transformer<B>, ModelError> {
        let model = self.config.init_from(&mut WeightInit::zeros(), device);
        let mut model = model.map_err(|source| ModelError::Config {
            path: self.config_path.clone(),
            source,
        })?;
        self.fill(&mut model)?;
        Ok(model)
    }

    /// Fills a model of the same sizes, tensor by tensor.
    ///
    /// # Errors
    /// When numbers cannot be read or are damaged, or the model has other sizes.
    pub fn fill<B: Backend>(self, model: &mut Transformer<B>) -> Result<(), ModelError> {
        let (path, parameters) = self.into_parts();
        fill::<B, _>(model, parameters).map_err(|problem| ModelError::Weights { path, problem })
    }

    /// The file that names the tensors, and the parameters.
    pub fn into_parts(self) -> (PathBuf, Vec<StoredParameter>) {
        (self.path, self.parameters.into_values().collect())
    }

    /// The parameter at a path, which then is no longer there.
    ///
    /// # Panics
    /// When there is none: it is not one of the configuration's, or was taken before.
    pub fn take(&mut self, path: &str) -> StoredParameter {
        let parameter = self.parameters.remove(path);
        parameter.unwrap_or_else(|| panic!("no parameter `{path}`"))
    }

    /// The error of a tensor that cannot be read.
    pub fn error(&self, problem: &TensorProblem) -> ModelError {
        ModelError::tensor(&self.path, problem)
    }
}

impl Readable for StoredParameter {
    fn path(&self) -> &str {
        match self {
            Self::Floats(import) => import.path(),
            Self::Quantized(matrix) => matrix.path(),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Floats(import) => import.shape(),
            Self::Quantized(matrix) => matrix.shape(),
        }
    }

    fn read(&self) -> Result<TensorData, TensorProblem> {
        match self {
            Self::Floats(import) => import.read(),
            Self::Quantized(matrix) => matrix.read(),
        }
    }
}

/// Our parameters with the tensors of a file of ours, by path.
///
/// # Errors
/// The tensors that are missing, unknown, or of another type or shape.
fn matched(
    parameters: Vec<Parameter>,
    mut dict: StateDict,
    is_quantized: bool,
) -> Result<BTreeMap<String, StoredParameter>, Vec<TensorProblem>> {
    let mut matched = BTreeMap::new();
    let mut problems = Vec::new();
    for parameter in parameters {
        let quantized = match is_quantized {
            true => QuantizedMatrix::take(&parameter, &mut dict.tensors),
            false => None,
        };
        let (path, shape) = parameter;
        let found = match quantized {
            Some(quantized) => quantized.map(StoredParameter::Quantized),
            None => take(&mut dict.tensors, &path, &shape, ElementType::F32)
                .map(|tensor| StoredParameter::Floats(Import::own(path.clone(), tensor))),
        };
        match found {
            Ok(found) => {
                matched.insert(path, found);
            }
            Err(problem) => problems.push(problem),
        }
    }
    check_matched(dict, problems)?;
    Ok(matched)
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
