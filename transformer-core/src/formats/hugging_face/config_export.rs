//! Writes our configuration as `config.json` of the model type that supports it.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::formats::error::ModelError;
use crate::formats::hugging_face::config::{Family, MAX_POSITIONS, ModelType, config, name_of};
use crate::formats::hugging_face::keys::{Keys, shown};
use crate::formats::hugging_face::{gpt2, t5};
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;

/// The keys of a `config.json` at `path` for a configuration, from which [`config()`] reads it back. Keys that our
/// configuration lacks are copied from `original`, the file from which the model was loaded.
///
/// # Errors
/// When no type supports it; the error names the unsupported key.
pub(crate) fn to_keys(
    path: PathBuf,
    config: &TransformerConfig,
    original: Option<&Keys>,
) -> Result<(ModelType, Keys), ModelError> {
    let model_type = match (config.positions, config.norm) {
        (Positions::Learned { .. }, _) if config.is_language_model() => ModelType::Gpt2,
        (Positions::SinesThenCosines { inclusive, .. }, _) => match inclusive {
            true => ModelType::M2m100,
            false => ModelType::Marian,
        },
        (Positions::Learned { .. }, NormPlacement::Post) => ModelType::Bart,
        (Positions::Learned { .. }, NormPlacement::Pre) => ModelType::Mbart,
        (Positions::RelativeBias { .. }, _) => ModelType::T5,
        _ => {
            return Err(ModelError::Unsupported {
                path,
                key: "positions".to_owned(),
                value: shown(Some(&json!(config.positions))),
                problem: "which no supported Hugging Face model type has".to_owned(),
            });
        }
    };
    let mut keys = vec![
        ("model_type", json!(model_type.name())),
        ("architectures", json!([model_type.class()])),
        ("vocab_size", json!(config.src_vocab_size)),
        ("tie_word_embeddings", json!(config.tying.ties_generator())),
        ("pad_token_id", json!(config.special_tokens().padding())),
        ("eos_token_id", json!(config.eos_id)),
        ("torch_dtype", json!("float32")),
    ];
    if !config.is_language_model() {
        keys.extend([
            ("is_encoder_decoder", json!(true)),
            ("d_model", json!(config.d_model)),
            ("decoder_start_token_id", json!(config.bos_id)),
        ]);
    }
    keys.extend(match model_type.family() {
        Family::Bart => of_bart_family(model_type, config, original)?,
        Family::T5 => t5::to_keys(config),
        Family::Gpt2 => gpt2::to_keys(config),
    });
    let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value));
    let keys = keys.collect();
    let keys = Keys::new(path, keys);
    refuse_another(&keys, model_type, config)?;
    Ok((model_type, keys))
}

/// The keys of BART's family that T5's lacks.
fn of_bart_family(
    model_type: ModelType,
    config: &TransformerConfig,
    original: Option<&Keys>,
) -> Result<Vec<(&'static str, Value)>, ModelError> {
    let layerdrop = |key| match original {
        Some(original) => original.number(key),
        None => Ok(None),
    };
    let mut keys = vec![
        ("encoder_layers", json!(config.n_encoder_layers)),
        ("decoder_layers", json!(config.n_decoder_layers)),
        ("num_hidden_layers", json!(config.n_encoder_layers)),
        ("encoder_attention_heads", json!(config.n_heads)),
        ("decoder_attention_heads", json!(config.decoder_n_heads())),
        ("encoder_ffn_dim", json!(config.d_ff)),
        ("decoder_ffn_dim", json!(config.decoder_d_ff())),
        ("activation_function", json!(name_of(config.activation))),
        ("dropout", json!(config.dropout)),
        ("attention_dropout", json!(config.attention_dropout)),
        ("activation_dropout", json!(config.activation_dropout)),
        (
            "encoder_layerdrop",
            json!(layerdrop("encoder_layerdrop")?.unwrap_or(0.0)),
        ),
        (
            "decoder_layerdrop",
            json!(layerdrop("decoder_layerdrop")?.unwrap_or(0.0)),
        ),
        ("scale_embedding", json!(config.embedding_scale)),
    ];
    let max_len = match (config.max_len(), original) {
        (Some(learned), _) => learned,
        (None, Some(original)) => original
            .size("max_position_embeddings")?
            .unwrap_or(MAX_POSITIONS),
        (None, None) => MAX_POSITIONS,
    };
    keys.push(("max_position_embeddings", json!(max_len)));
    if model_type == ModelType::Marian {
        let is_shared = config.tying.ties_source_target();
        keys.extend([
            ("decoder_vocab_size", json!(config.tgt_vocab_size)),
            ("share_encoder_decoder_embeddings", json!(is_shared)),
            ("static_position_embeddings", json!(true)),
        ]);
    }
    Ok(keys)
}

/// Refuses a configuration that the written keys do not fully express; the error names the first of our keys that would
/// be read with another value.
fn refuse_another(
    keys: &Keys,
    model_type: ModelType,
    written: &TransformerConfig,
) -> Result<(), ModelError> {
    let (_, read) = config(keys, None)?;
    let read = TransformerConfig {
        // Determined by the weights.
        generator_bias: written.generator_bias && model_type.has_generator_bias(),
        tying: match (read.tying, written.tying) {
            (WeightTying::SourceTarget, WeightTying::None)
                if model_type.family() == Family::Bart =>
            {
                WeightTying::None
            }
            (read, _) => read,
        },
        ..read
    };
    let (written, read) = (
        json!(without_defaults(written)),
        json!(without_defaults(&read)),
    );
    let all = [&written, &read].into_iter().filter_map(Value::as_object);
    let mut differing = all
        .flat_map(Map::keys)
        .filter(|&key| written.get(key) != read.get(key));
    match differing.next() {
        None => Ok(()),
        Some(key) => Err(ModelError::Unsupported {
            path: keys.path().to_owned(),
            key: key.clone(),
            value: shown(written.get(key)),
            problem: format!(
                "which model type {} does not support: it would be read as {}",
                model_type.name(),
                shown(read.get(key))
            ),
        }),
    }
}

/// A configuration in which widths and heads that equal their defaults are absent.
pub(crate) fn without_defaults(config: &TransformerConfig) -> TransformerConfig {
    let share = Some(config.d_model / config.n_heads);
    let is_share = |width| width == share && config.decoder_n_heads() == config.n_heads;
    let other_heads = |&n_heads: &usize| n_heads != config.n_heads;
    TransformerConfig {
        decoder_n_heads: config.decoder_n_heads.filter(other_heads),
        d_k: config.d_k.filter(|_| !is_share(config.d_k)),
        d_v: config.d_v.filter(|_| !is_share(config.d_v)),
        decoder_d_ff: config.decoder_d_ff.filter(|&d_ff| d_ff != config.d_ff),
        ..config.clone()
    }
}
