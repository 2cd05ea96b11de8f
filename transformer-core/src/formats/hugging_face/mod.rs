//! Reads and writes model directories of Hugging Face's `transformers`.
//!
//! ```text
//! config.json             ── config, config_export ──        TransformerConfig
//! generation_config.json  ── derived; options ──             DecodeOptions
//! the weights' files      ── weights, names; state_dict ──   Transformer, LanguageModel
//! ```
//!
//! A loaded model is an ordinary one: nothing else in the crate knows Hugging Face's tensor names and configuration
//! keys. The decoding keys, which our directories have, too, are in `formats/options.rs`.

pub mod config;
pub mod config_export;
pub mod derived;
mod export;
mod gpt2;
pub mod keys;
mod names;
mod t5;
#[cfg(test)]
mod tests;
mod weights;

use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::format::{Files, Format, Opened};
use crate::formats::name_map::{Import, Map};
use crate::formats::own::config::type_of_hugging_face;
use crate::formats::state_dict::StateDict;
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use config::{Family, ModelType};
use keys::Keys;

#[cfg(feature = "text")]
pub(crate) use config::key_of;
pub(crate) use weights::open as open_weights;

/// Directories of Hugging Face's `transformers`.
pub(crate) struct HuggingFace;

impl Format for HuggingFace {
    fn recognizes(&self, files: &Files) -> bool {
        files.config().and_then(type_of_hugging_face).is_some()
    }

    fn open(&self, files: &Files) -> Result<Opened, ModelError> {
        let keys = Keys::of_config(files)?;
        let (model_type, mut config) = config::config(&keys, files.generation()?)?;
        let (path, weights) = weights::open(files.directory())?;
        config.generator_bias = has_generator_bias(model_type, &weights)
            .map_err(|problem| ModelError::tensors(&path, vec![problem]))?;
        if model_type.family() == Family::Bart && has_separate_embeddings(&config, &weights) {
            config.tying = WeightTying::None;
        }
        let all = weights.tensors.keys();
        let unused: Vec<String> = all.filter(|name| names::is_unused(name)).cloned().collect();
        let map =
            map(model_type, &config, &weights, &unused).map_err(ModelError::unnamed(&path))?;
        // Values are compared only if all tensors have the right types and shapes.
        for find in [Map::wrong_kinds, Map::wrong_numbers] {
            let problems = find(&map, &weights);
            if !problems.is_empty() {
                return Err(ModelError::tensors(&path, problems));
            }
        }
        let parameters = map.imports(&weights).into_iter();
        Ok(Opened {
            format: format!("Hugging Face, type {}", model_type.name()),
            parameters: parameters.map(Import::into_parameter).collect(),
            config,
            weights: path,
            options: None,
            unused,
        })
    }
}

/// Whether the logits have a bias other than zero: adding zero would be wasted work.
fn has_generator_bias(model_type: ModelType, weights: &StateDict) -> Result<bool, TensorProblem> {
    match weights.tensors.get(names::LOGITS_BIAS) {
        Some(bias) if model_type.has_generator_bias() => match bias.is_zero() {
            Ok(is_zero) => Ok(!is_zero),
            Err(error) => Err(TensorProblem::unreadable(names::LOGITS_BIAS, &error)),
        },
        _ => Ok(false),
    }
}

/// Whether a model with untied logits has separate matrices for source and target. Since version 5, Hugging Face's
/// `tie_word_embeddings` ties all matrices or none; before, source and target always shared one.
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
    // A tensor that cannot be read is reported when its values are read.
    let is_first = |own| first.equals(own).unwrap_or(true);
    config.tying == WeightTying::SourceTarget && !(is_first(source) && is_first(target))
}

/// The map of the names in the weights files, of which those in `unused` are ignored.
///
/// # Errors
/// The parameters without a name.
fn map(
    model_type: ModelType,
    config: &TransformerConfig,
    weights: &StateDict,
    unused: &[String],
) -> Result<Map, Vec<String>> {
    // A file has at most as many layers as tensors, so one more is sure to be reported as missing.
    let mut map =
        full_map(model_type, config, weights.tensors.len() + 1)?.ignoring(&names::IGNORED);
    let all = || weights.tensors.keys().map(String::as_str);
    let unused: Vec<&str> = unused.iter().map(String::as_str).collect();
    map = map.ignoring(&unused);
    if !config.generator_bias {
        map = map.ignoring(&[names::LOGITS_BIAS]);
    }
    let prefix = match model_type.family() {
        Family::Gpt2 => names::GPT2_PREFIX,
        _ => names::PREFIX,
    };
    if !all().any(|name| name.starts_with(prefix)) {
        map = map.without_prefix(prefix);
    }
    Ok(match model_type.family() {
        Family::Gpt2 => {
            let masks = all().filter(|name| names::is_gpt2_mask(name));
            map.ignoring(&masks.collect::<Vec<_>>())
        }
        _ => map,
    })
}

/// The map of at most `max_layers` layers per stack.
fn full_map(
    model_type: ModelType,
    config: &TransformerConfig,
    max_layers: usize,
) -> Result<Map, Vec<String>> {
    let named = |names| Map::transformer(names, config, max_layers);
    Ok(match model_type.family() {
        Family::Bart => match (named(&names::BART)?, config.tying.ties_source_target()) {
            (map, true) => map,
            (map, false) => map.without_name(names::SHARED).ignoring(&[names::SHARED]),
        },
        Family::T5 => match (named(&names::T5)?, names::T5_INNER) {
            (map, _) if config.gated => map,
            (map, [without_gate, with_gate]) => map.with_part(with_gate, without_gate),
        },
        Family::Gpt2 => named(&names::GPT2)?,
    })
}
