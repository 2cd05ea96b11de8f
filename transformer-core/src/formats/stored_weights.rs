//! The tensors of a model directory under their names in its files, for tools that work on files: no configuration is
//! needed, and no model is built.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::format::{Files, Format};
use crate::formats::hugging_face::{HuggingFace, open_weights};
use crate::formats::names::WEIGHTS_FILE;
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::StoredTensor;
use crate::formats::{ctranslate2, marian};

/// The tensors of a model directory, ours or Hugging Face's. Values are read only on request.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn_ndarray::NdArray;
/// use transformer_core::formats::{StoredWeights, WEIGHTS_FILE, save_weights};
///
/// # fn main() -> Result<(), transformer_core::formats::ModelError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let directory = folder.path();
/// let linear = LinearConfig::new(2, 3).init::<NdArray>(&Default::default());
/// save_weights(&linear, directory.join(WEIGHTS_FILE))?;
///
/// let weights = StoredWeights::open(directory)?;
/// assert_eq!(weights.names().collect::<Vec<_>>(), ["bias", "weight"]);
/// let kind = weights.kind("weight").unwrap();
/// assert_eq!(kind.to_string(), "F32 [2, 3]");
/// assert_eq!(weights.bytes("weight")?.len(), 2 * 3 * 4);
/// # Ok(())
/// # }
/// ```
pub struct StoredWeights {
    path: PathBuf,
    weights: StateDict,
    is_of_hugging_face: bool,
}

/// The type and the shape of a tensor, displayed as `F32 [2, 3]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorKind {
    /// The element type, as named in safetensors files: `F32`, `BF16`, `I64`.
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
}

impl fmt::Display for TensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)
    }
}

impl StoredWeights {
    /// Opens the weights of a directory: `model.safetensors`, or in a Hugging Face directory any file that
    /// [`Transformer::load`](crate::Transformer::load) reads. A configuration is not required.
    ///
    /// # Errors
    /// When the weights are missing or damaged, or the configuration is damaged.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::of(&Files::of(&directory)?)
    }

    /// [`open`](Self::open) for a directory that is already open.
    ///
    /// # Errors
    /// When the weights are missing or damaged.
    pub fn of(files: &Files) -> Result<Self, ModelError> {
        let directory = files.directory();
        let other = match () {
            () if ctranslate2::is_in(directory) => Some("CTranslate2"),
            () if marian::is_in(directory) => Some("Marian"),
            () => None,
        };
        if let Some(name) = other {
            let problem = format!(
                "the tensors of {name}'s format are not read by name; only those of this library's and of Hugging \
                 Face's directories are"
            );
            return Err(ModelError::Weights {
                path: directory.to_owned(),
                problem,
            });
        }
        let is_of_hugging_face = HuggingFace.recognizes(files);
        let (path, weights) = match is_of_hugging_face {
            true => open_weights(directory)?,
            false => {
                let path = directory.join(WEIGHTS_FILE);
                let weights = StateDict::read_safetensors(&path);
                let weights = weights.map_err(|error| error.into_model(&path))?;
                (path, weights)
            }
        };
        let others = weights.others.iter().cloned();
        let problems: Vec<_> = others
            .map(|name| TensorProblem::NotATensor { name })
            .collect();
        match problems.is_empty() {
            true => Ok(Self {
                path,
                weights,
                is_of_hugging_face,
            }),
            false => Err(ModelError::tensors(&path, problems)),
        }
    }

    /// The file that lists the tensors: the weights file, or the index of its shards.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the tensors in alphabetical order, including all names of a tensor stored under several.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.weights.tensors.keys().map(String::as_str)
    }

    /// The type and the shape of a tensor; `None` if there is no such tensor.
    pub fn kind(&self, name: &str) -> Option<TensorKind> {
        let tensor = self.weights.tensors.get(name)?;
        Some(TensorKind {
            dtype: tensor.element.name().to_uppercase(),
            shape: tensor.shape.clone(),
        })
    }

    /// The values of a tensor, in row-major order, little-endian.
    ///
    /// # Errors
    /// When there is no such tensor, or its values are damaged or cannot be read.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let tensor = self.weights.tensors.get(name);
        let problem = match tensor.map(StoredTensor::bytes) {
            Some(Ok(bytes)) => return Ok(bytes),
            Some(Err(error)) => TensorProblem::unreadable(name, &error),
            None => TensorProblem::Missing {
                name: name.to_owned(),
            },
        };
        Err(ModelError::tensor(&self.path, &problem))
    }

    /// The library whose conventions the file follows, as in a safetensors header: `pt` in Hugging Face directories,
    /// `burn` in ours.
    pub fn format(&self) -> Option<&str> {
        match self.is_of_hugging_face {
            true => Some("pt"),
            false => self.weights.format.as_deref(),
        }
    }
}

impl fmt::Debug for StoredWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        f.debug_struct("StoredWeights")
            .field("path", &self.path)
            .field("names", &names)
            .finish_non_exhaustive()
    }
}
