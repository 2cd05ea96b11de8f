//! An open model directory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use burn::module::Module;
use burn::tensor::backend::Backend;

use crate::decoding::DecodeOptions;
use crate::formats::argos;
use crate::formats::ctranslate2::{self, CTranslate2};
use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::files::is_there;
use crate::formats::fill::fill;
use crate::formats::format::{Files, Format, Opened};
use crate::formats::hugging_face::HuggingFace;
use crate::formats::marian::{self, Marian};
use crate::formats::names::CONFIG_FILE;
use crate::formats::options::options_of;
use crate::formats::own::Own;
use crate::formats::own::config::{LANGUAGE_MODEL, TRANSFORMER};
use crate::formats::parameter::{StoredParameter, problems};
use crate::models::config::TransformerConfig;
use crate::models::language_model::LanguageModel;
use crate::models::transformer::Transformer;
use crate::nn::error::ConfigError;
use crate::nn::init::WeightInit;

/// The built-in formats.
const FORMATS: [&dyn Format; 4] = [&HuggingFace, &CTranslate2, &Marian, &Own];

/// An open model directory: its configuration, decoding options and weights, whose values are read when a model is
/// built.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::{ModelDirectory, TransformerConfig};
/// use transformer_core::packed::PackedPrecision;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path();
/// let config = TransformerConfig {
///     d_model: 16,
///     n_heads: 2,
///     d_ff: 32,
///     ..TransformerConfig::base(20)
/// };
/// config.init::<NdArray>(42, &Default::default())?.save(path)?;
///
/// let directory = ModelDirectory::open(path)?;
/// assert_eq!(directory.config(), &config);
/// let model = directory.transformer::<NdArray>(&Default::default())?;
/// let packed = directory.packed(PackedPrecision::Int8)?;
/// # Ok(())
/// # }
/// ```
pub struct ModelDirectory {
    files: Files,
    /// Without its parameters.
    opened: Opened,
    /// By their paths in the module.
    parameters: BTreeMap<String, Rc<StoredParameter>>,
}

impl ModelDirectory {
    /// Opens a directory of this library, an unmodified Hugging Face directory of type `marian`, `m2m_100`, `bart`,
    /// `mbart`, `t5` (also T5 v1.1, MADLAD-400 and ByT5), `mt5` or `gpt2`, a directory of CTranslate2 or of Marian, or
    /// a package of Argos Translate (`.argosmodel`, or unpacked). Hugging Face's weights may be in `model.safetensors`
    /// or `pytorch_model.bin`, in one file or sharded, in single or half precision; ours also in 8 bits
    /// ([`quantize`](crate::formats::quantize)), CTranslate2's in any of its types, Marian's also in `intgemm`'s. No
    /// code in a file is executed.
    ///
    /// # Errors
    /// When a file is missing or damaged, the configuration is invalid or not supported, or the weights do not match
    /// it. One error then names up to eight tensors that are missing, unknown, or of the wrong type or shape, and the
    /// number of others.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::open_with(path, &[])
    }

    /// Opens a directory, trying these formats before the built-in ones.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, formats: &[&dyn Format]) -> Result<Self, ModelError> {
        let files = Files::of(path)?;
        let mut formats = formats.iter().chain(&FORMATS).copied();
        let format = formats.find(|format| format.recognizes(&files));
        // Ours also reports what a directory of unknown format lacks.
        let mut opened = format.unwrap_or(&Own).open(&files)?;
        let checked = opened.config.validate();
        checked.map_err(|source| config_error(&files, source))?;
        let parameters = std::mem::take(&mut opened.parameters);
        // A file has at most as many layers as tensors, so one more is sure to be reported as missing.
        let expected = opened.config.parameters(parameters.len() + 1);
        let problems = problems(&parameters, expected);
        if !problems.is_empty() {
            return Err(ModelError::tensors(&opened.weights, problems));
        }
        let parameters = parameters.into_iter().map(Rc::new);
        Ok(Self {
            parameters: parameters.map(|own| (own.path().to_owned(), own)).collect(),
            files,
            opened,
        })
    }

    /// Whether a directory has a model of a built-in format, judging by its file names.
    pub fn is_in(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        is_there(&path.join(CONFIG_FILE))
            || ctranslate2::is_in(path)
            || marian::is_in(path)
            || argos::is_in(path)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.files.directory()
    }

    /// The files of the directory.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The configuration of the model.
    pub fn config(&self) -> &TransformerConfig {
        &self.opened.config
    }

    /// A short description of the format.
    pub fn format(&self) -> &str {
        &self.opened.format
    }

    /// The decoding options saved with the model, for a checkpoint with its run. `None` if neither a file nor the
    /// format has any, as in most directories of this library.
    ///
    /// # Errors
    /// As [`Files::options`].
    pub fn options(&self) -> Result<Option<DecodeOptions>, ModelError> {
        Ok(self.options_and_path()?.map(|(_, options)| options))
    }

    /// The options and their file.
    pub(crate) fn options_and_path(&self) -> Result<Option<(PathBuf, DecodeOptions)>, ModelError> {
        let of_format = || Some((self.path().to_owned(), self.opened.options.clone()?));
        Ok(options_of(&self.files)?.or_else(of_format))
    }

    /// The tensors in the files that the model does not use, such as the `classification_head` of a classifier. Hugging
    /// Face also ignores them, with a warning.
    pub fn unused_tensors(&self) -> &[String] {
        &self.opened.unused
    }

    /// Whether any matrix is in 8-bit integers.
    pub fn is_int8(&self) -> bool {
        self.parameters().any(StoredParameter::is_int8)
    }

    /// The parameters in the order of their paths. Their values stay in the files.
    pub fn parameters(&self) -> impl Iterator<Item = &StoredParameter> {
        self.parameters.values().map(Rc::as_ref)
    }

    /// The parameter at a path in the module.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn parameter(&self, path: &str) -> &StoredParameter {
        let parameter = self.parameters.get(path);
        parameter.unwrap_or_else(|| panic!("no parameter `{path}`"))
    }

    /// Loads the encoder–decoder model.
    ///
    /// # Errors
    /// When the directory has a language model, or values cannot be read or are damaged.
    pub fn transformer<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<Transformer<B>, ModelError> {
        self.check_kind(TRANSFORMER)?;
        let model = self.config().init_from(&mut WeightInit::zeros(), device);
        let mut model = model.map_err(|source| config_error(&self.files, source))?;
        self.fill(&mut model)?;
        Ok(model)
    }

    /// Loads the language model.
    ///
    /// # Errors
    /// When the directory has an encoder–decoder model, or values cannot be read or are damaged.
    pub fn language_model<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<LanguageModel<B>, ModelError> {
        self.check_kind(LANGUAGE_MODEL)?;
        let config = self.config();
        let model = config.init_language_model_from(&mut WeightInit::zeros(), device);
        let mut model = model.map_err(|source| config_error(&self.files, source))?;
        self.fill(&mut model)?;
        Ok(model)
    }

    /// Loads the weights into a model of the same sizes, tensor by tensor. Settings without weights, such as dropout,
    /// may differ.
    ///
    /// # Errors
    /// When values cannot be read or are damaged, or the model has other parameters.
    pub fn fill<B: Backend, M: Module<B>>(&self, model: &mut M) -> Result<(), ModelError> {
        let parameters = self.parameters.values().cloned().collect();
        fill::<B, M>(model, parameters).map_err(|problem| ModelError::Weights {
            path: self.opened.weights.clone(),
            problem,
        })
    }

    /// The error for a parameter that cannot be read.
    pub(crate) fn tensor_error(&self, problem: &TensorProblem) -> ModelError {
        ModelError::tensor(&self.opened.weights, problem)
    }

    fn check_kind(&self, expected: &str) -> Result<(), ModelError> {
        self.config()
            .check_kind(&self.files.path(CONFIG_FILE), expected)
    }
}

fn config_error(files: &Files, source: ConfigError) -> ModelError {
    ModelError::Config {
        path: files.path(CONFIG_FILE),
        source,
    }
}

impl fmt::Debug for ModelDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDirectory")
            .field("path", &self.path())
            .field("format", &self.format())
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}
