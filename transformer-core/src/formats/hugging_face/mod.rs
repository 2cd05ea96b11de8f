//! Model directories of Hugging Face's `transformers`, read as they are and written.
//!
//! ```text
//! config.json             ── config, config_export ──        TransformerConfig
//! generation_config.json  ── derived; options ──             DecodeOptions
//! the weights' files      ── weights, names; state_dict ──   Transformer
//! ```
//!
//! A model that was read is an ordinary one: nothing else in the crate knows these names and keys.

pub mod config;
mod config_export;
pub mod derived;
mod export;
pub mod keys;
mod names;
#[cfg(test)]
mod tests;
mod weights;

use std::path::{Path, PathBuf};

use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::name_map::{Import, Map};
use crate::formats::options::GENERATION_FILE;
use crate::formats::own::config::{CONFIG_FILE, is_of_hugging_face};
use crate::formats::state_dict::StateDict;
use crate::models::config::TransformerConfig;
use crate::models::config::WeightTying;
use config::ModelType;
use keys::Keys;

#[cfg(feature = "text")]
pub(crate) use config::key_of;
pub(crate) use weights::open as open_weights;

/// A directory whose tensors are those of its configuration, by name, type and shape. No number has been read
/// but those of the logits' bias.
pub(crate) struct Directory {
    pub config: TransformerConfig,
    map: Map,
    /// The file that names the tensors.
    pub path: PathBuf,
    /// Tensors that the model does not have and Hugging Face ignores.
    unused: Vec<String>,
    weights: StateDict,
}

/// The tensors of a directory of Hugging Face's that are not read because its class does not have them, such as the
/// `classification_head` of a model that classified; Hugging Face ignores them, too, with a warning. A directory of
/// ours has none.
///
/// # Errors
/// When a file is missing or damaged, or the other tensors are not those of the configuration.
pub fn unused_tensors(directory: impl AsRef<Path>) -> Result<Vec<String>, ModelError> {
    let directory = directory.as_ref();
    match is_of_hugging_face(directory)? {
        true => Ok(Directory::open(directory)?.unused),
        false => Ok(Vec::new()),
    }
}

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    /// When a file is missing or damaged, a key of `config.json` asks for a model that ours cannot be, or the
    /// tensors are not those of the configuration.
    pub fn open(directory: &Path) -> Result<Self, ModelError> {
        let keys = Keys::read(&directory.join(CONFIG_FILE))?;
        let generation = Keys::read_if_there(&directory.join(GENERATION_FILE))?;
        let (model_type, mut config) = config::config(&keys, generation.as_ref())?;
        let (path, weights) = weights::open(directory)?;
        config.generator_bias = has_generator_bias(model_type, &weights)
            .map_err(|problem| ModelError::tensors(&path, vec![problem]))?;
        if has_separate_embeddings(&config, &weights) {
            config.tying = WeightTying::None;
        }
        let all = weights.tensors.keys();
        let unused: Vec<String> = all.filter(|name| names::is_unused(name)).cloned().collect();
        let map = map(&config, &weights, &unused).map_err(|unnamed| ModelError::Weights {
            path: path.clone(),
            problem: format!("no names for `{}`", unnamed.join("`, `")),
        })?;
        let problems = map.wrong_kinds(&weights);
        if !problems.is_empty() {
            return Err(ModelError::tensors(&path, problems));
        }
        Ok(Self {
            config,
            map,
            path,
            unused,
            weights,
        })
    }

    /// The parameters of the model, to be read one by one.
    ///
    /// # Errors
    /// When numbers cannot be read or are damaged, or tied tensors differ.
    pub fn imports(&self) -> Result<Vec<Import>, ModelError> {
        let problems = self.map.wrong_numbers(&self.weights);
        match problems.is_empty() {
            true => Ok(self.map.imports(&self.weights)),
            false => Err(ModelError::tensors(&self.path, problems)),
        }
    }
}

/// Whether the logits have a bias other than zero, which would be added for nothing.
fn has_generator_bias(model_type: ModelType, weights: &StateDict) -> Result<bool, TensorProblem> {
    match weights.tensors.get(names::LOGITS_BIAS) {
        Some(bias) if model_type.has_generator_bias() => match bias.is_zero() {
            Ok(is_zero) => Ok(!is_zero),
            Err(error) => Err(TensorProblem::unreadable(names::LOGITS_BIAS, &error)),
        },
        _ => Ok(false),
    }
}

/// Whether a model that does not tie its logits has a matrix for each vocabulary. Since version 5 Hugging Face's
/// `tie_word_embeddings` is for all matrices or none; before, source and target had one in any case.
fn has_separate_embeddings(config: &TransformerConfig, weights: &StateDict) -> bool {
    let found = |name: &str| {
        let without = name.strip_prefix(names::PREFIX).unwrap_or(name);
        let tensors = &weights.tensors;
        tensors.get(name).or_else(|| tensors.get(without))
    };
    let [source, target] = names::EMBEDDINGS.map(found);
    let (Some(source), Some(target)) = (source, target) else {
        return false;
    };
    let first = found(names::SHARED).unwrap_or(source);
    // A tensor that cannot be read is reported when its numbers are read.
    let is_first = |own| first.equals(own).unwrap_or(true);
    config.tying == WeightTying::SourceTarget && !(is_first(source) && is_first(target))
}

/// The map of the names in the weights' files, some of which are not used.
///
/// # Errors
/// Parameters without a name.
fn map(
    config: &TransformerConfig,
    weights: &StateDict,
    unused: &[String],
) -> Result<Map, Vec<String>> {
    // A file has at most as many layers as tensors, so that one more is certainly missing from it.
    let mut map = full_map(config, weights.tensors.len() + 1)?.ignoring(&names::IGNORED);
    let unused: Vec<&str> = unused.iter().map(String::as_str).collect();
    map = map.ignoring(&unused);
    if !config.generator_bias {
        map = map.ignoring(&[names::LOGITS_BIAS]);
    }
    let has_prefix = |name: &String| name.starts_with(names::PREFIX);
    Ok(match weights.tensors.keys().any(has_prefix) {
        true => map,
        false => map.without_prefix(names::PREFIX),
    })
}

/// The map of at most `max_layers` layers of each stack.
fn full_map(config: &TransformerConfig, max_layers: usize) -> Result<Map, Vec<String>> {
    let map = Map::transformer(&names::NAMES, config, max_layers)?;
    Ok(match config.tying.ties_source_target() {
        true => map,
        false => map.without_name(names::SHARED).ignoring(&[names::SHARED]),
    })
}
