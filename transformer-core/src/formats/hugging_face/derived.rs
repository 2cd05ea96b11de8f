//! The keys that determine decoding, chosen as by Hugging Face's `generate`: from `generation_config.json`, or from
//! `config.json` with the defaults of its class.

use serde_json::{Value, json};

use crate::formats::error::ModelError;
use crate::formats::hugging_face::config::ModelType;
use crate::formats::hugging_face::keys::Keys;

/// The decoding parameters in `config.json`, with the defaults that all classes share; the default of
/// `forced_eos_token_id` depends on the class. `false` is 0 here, as in Python.
const PARAMETERS: [(&str, Option<f64>); 24] = [
    ("max_length", Some(20.0)),
    ("min_length", Some(0.0)),
    ("do_sample", Some(0.0)),
    ("early_stopping", Some(0.0)),
    ("num_beams", Some(1.0)),
    ("temperature", Some(1.0)),
    ("top_k", Some(50.0)),
    ("top_p", Some(1.0)),
    ("typical_p", Some(1.0)),
    ("repetition_penalty", Some(1.0)),
    ("length_penalty", Some(1.0)),
    ("no_repeat_ngram_size", Some(0.0)),
    ("encoder_no_repeat_ngram_size", Some(0.0)),
    ("bad_words_ids", None),
    ("num_return_sequences", Some(1.0)),
    ("output_scores", Some(0.0)),
    ("return_dict_in_generate", Some(0.0)),
    ("forced_bos_token_id", None),
    ("remove_invalid_values", Some(0.0)),
    ("exponential_decay_length_penalty", None),
    ("suppress_tokens", None),
    ("begin_suppress_tokens", None),
    ("num_beam_groups", Some(1.0)),
    ("diversity_penalty", Some(0.0)),
];

/// The tokens for which a class may have a default.
const TOKENS: [&str; 5] = [
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "forced_eos_token_id",
];

/// The keys that determine decoding, from `config.json` and `generation_config.json`. A `generation_config.json`
/// derived from `config.json` gives way to it if `config.json` has since been given decoding parameters.
pub(crate) fn in_force(
    model: Option<&Keys>,
    generation: Option<&Keys>,
) -> Result<Option<Keys>, ModelError> {
    let (model, generation) = match (model, generation) {
        (None, generation) => return Ok(generation.cloned()),
        (Some(model), None) => return derived(model).map(Some),
        (Some(model), Some(generation)) => (model, generation),
    };
    let is_derived = generation.flag("_from_model_config")?.unwrap_or(false);
    match is_derived && has_parameters(model)? {
        true => derived(model).map(Some),
        false => Ok(Some(generation.clone())),
    }
}

/// Whether a `config.json` has a decoding parameter that differs from the default of its class.
fn has_parameters(model: &Keys) -> Result<bool, ModelError> {
    let model_type = ModelType::of(model)?;
    let forced_last = model_type.default_token("forced_eos_token_id");
    let mut parameters = PARAMETERS.to_vec();
    parameters.push(("forced_eos_token_id", forced_last.map(f64::from)));
    let differs = |(key, default): (&str, Option<f64>)| {
        let value = model.value(key);
        value.is_some_and(|value| number(value).is_none_or(|value| Some(value) != default))
    };
    let forces_bos = forced_by_old_key(model_type, model)?.is_some();
    Ok(forces_bos || parameters.into_iter().any(differs))
}

/// A value as a number; a flag is 0 or 1.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or(value.as_bool().map(f64::from))
}

/// The keys that Hugging Face derives from a `config.json`: an absent token has the class's default, a null one has
/// none.
fn derived(model: &Keys) -> Result<Keys, ModelError> {
    let model_type = ModelType::of(model)?;
    let mut keys = model.clone();
    for key in TOKENS {
        if let Some(token) = model_type.default_token(key)
            && model.is_absent(key)
        {
            keys.set(key, json!(token));
        }
    }
    if let Some(token) = forced_by_old_key(model_type, &keys)? {
        keys.set("forced_bos_token_id", json!(token));
    }
    Ok(keys)
}

/// The first token forced by BART's older key, from before `forced_bos_token_id` existed.
fn forced_by_old_key(model_type: ModelType, keys: &Keys) -> Result<Option<u32>, ModelError> {
    let is_forced = model_type == ModelType::Bart
        && keys.value("forced_bos_token_id").is_none()
        && keys
            .flag("force_bos_token_to_be_generated")?
            .unwrap_or(false);
    match is_forced {
        true if keys.is_absent("bos_token_id") => Ok(model_type.default_token("bos_token_id")),
        true => keys.token("bos_token_id"),
        false => Ok(None),
    }
}
