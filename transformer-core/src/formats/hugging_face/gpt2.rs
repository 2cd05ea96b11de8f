//! `config.json` of GPT-2's family: GPT-2, DistilGPT-2, DialoGPT.

use serde_json::{Value, json};

use crate::formats::error::ModelError;
use crate::formats::hugging_face::config::{self, activation_named, name_of};
use crate::formats::hugging_face::keys::{Keys, shown};
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;

/// Two names of one key.
pub(super) const SAME: &[(&str, &str)] = &[
    ("hidden_size", "n_embd"),
    ("max_position_embeddings", "n_positions"),
    ("num_attention_heads", "n_head"),
    ("num_hidden_layers", "n_layer"),
];

/// Keys that may be absent, because the class has a default, but not null.
pub(super) const NEVER_NULL: &[&str] = &[
    "activation_function",
    ATTENTION_DROPOUT,
    DROPOUT,
    EMBEDDING_DROPOUT,
    "layer_norm_epsilon",
];

/// The flags of the class that our layers fix at these values.
pub(super) const FACTS: &[(&str, bool)] = &[
    ("is_encoder_decoder", false),
    ("add_cross_attention", false),
    ("scale_attn_by_inverse_layer_idx", false),
];

const ATTENTION_DROPOUT: &str = "attn_pdrop";
const DROPOUT: &str = "resid_pdrop";
const EMBEDDING_DROPOUT: &str = "embd_pdrop";

/// The configuration of a model, without special tokens.
pub(super) fn config(keys: &Keys) -> Result<TransformerConfig, ModelError> {
    let vocab_size = keys.size_of_all("vocab_size")?;
    let d_model = keys.size_of_all("n_embd")?;
    let d_ff = match keys.size("n_inner")? {
        Some(d_ff) => d_ff,
        None => d_model.saturating_mul(4),
    };
    let activation = "activation_function";
    let dropout = keys.number(DROPOUT)?.unwrap_or(0.1);
    if keys.number(EMBEDDING_DROPOUT)?.unwrap_or(0.1) != dropout {
        let rate = shown(keys.value(DROPOUT));
        let problem = format!("but `{DROPOUT}` is {rate}; only equal rates are supported");
        return Err(keys.refusal(EMBEDDING_DROPOUT, problem));
    }
    Ok(TransformerConfig {
        src_vocab_size: vocab_size,
        tgt_vocab_size: vocab_size,
        d_model,
        n_heads: keys.size_of_all("n_head")?,
        d_ff,
        n_encoder_layers: 0,
        n_decoder_layers: keys.size_of_all("n_layer")?,
        norm: NormPlacement::Pre,
        final_norm: true,
        layer_norm_eps: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        positions: Positions::Learned {
            max_len: keys.size_of_all("n_positions")?,
        },
        attention_bias: true,
        attention_scale: keys.flag_or("scale_attn_weights", true)?,
        embedding_scale: false,
        tying: match keys.flag_or("tie_word_embeddings", true)? {
            true => WeightTying::TargetGenerator,
            false => WeightTying::None,
        },
        activation: activation_named(
            keys,
            activation,
            keys.text(activation)?.unwrap_or("gelu_new"),
        )?,
        dropout,
        attention_dropout: keys.number(ATTENTION_DROPOUT)?.unwrap_or(0.1),
        prompt_bos: false,
        ..TransformerConfig::default()
    })
}

/// The keys for a configuration, except those that all types have.
pub(super) fn to_keys(config: &TransformerConfig) -> Vec<(&'static str, Value)> {
    vec![
        ("n_embd", json!(config.d_model)),
        ("n_head", json!(config.n_heads)),
        ("n_layer", json!(config.n_decoder_layers)),
        ("n_inner", json!(config.decoder_d_ff())),
        ("n_positions", json!(config.max_len())),
        ("activation_function", json!(name_of(config.activation))),
        ("layer_norm_epsilon", json!(config.layer_norm_eps)),
        ("scale_attn_weights", json!(config.attention_scale)),
        (DROPOUT, json!(config.dropout)),
        (EMBEDDING_DROPOUT, json!(config.dropout)),
        (ATTENTION_DROPOUT, json!(config.attention_dropout)),
        ("bos_token_id", json!(config.bos_id)),
    ]
}

/// The file's key for one of our keys.
pub(super) fn key_of(own: &'static str) -> &'static str {
    match own {
        "src_vocab_size" | "tgt_vocab_size" => "vocab_size",
        "d_model" => "n_embd",
        "n_heads" | "decoder_n_heads" => "n_head",
        "n_decoder_layers" => "n_layer",
        "d_ff" | "decoder_d_ff" => "n_inner",
        "max_len" => "n_positions",
        "layer_norm_eps" => "layer_norm_epsilon",
        "dropout" => DROPOUT,
        "attention_dropout" => ATTENTION_DROPOUT,
        "bos_id" => "bos_token_id",
        other => config::key_of(other),
    }
}
