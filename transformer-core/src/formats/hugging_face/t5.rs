//! `config.json` of T5's family: T5, T5 v1.1, mT5, MADLAD-400, ByT5.

use serde_json::{Value, json};

use crate::formats::error::ModelError;
use crate::formats::hugging_face::config::{self, ModelType, activation_named, name_of};
use crate::formats::hugging_face::keys::Keys;
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::norm::NormKind;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;
use transformer_kernels::Activation;

/// Two names of one key.
pub(super) const SAME: &[(&str, &str)] = &[
    ("hidden_size", "d_model"),
    ("num_attention_heads", "num_heads"),
    ("num_hidden_layers", "num_layers"),
    ("head_dim", "d_kv"),
];

/// Keys that may be absent, because the class has a default, but not null.
pub(super) const NEVER_NULL: &[&str] = &[
    "dense_act_fn",
    "dropout_rate",
    "feed_forward_proj",
    "hidden_size",
    "layer_norm_epsilon",
    "num_attention_heads",
    "pad_token_id",
    "relative_attention_max_distance",
    "relative_attention_num_buckets",
];

/// The keys of the feed-forward network. The class takes the first two from the third if they are absent.
const ACTIVATION: &str = "dense_act_fn";
const GATED: &str = "is_gated_act";
const FEED_FORWARD: &str = "feed_forward_proj";

/// The configuration of a model, without special tokens.
pub(super) fn config(model_type: ModelType, keys: &Keys) -> Result<TransformerConfig, ModelError> {
    let ties_generator = keys.flag_or("tie_word_embeddings", model_type == ModelType::T5)?;
    let vocab_size = keys.size_of_all("vocab_size")?;
    let d_kv = keys.size_of_all("d_kv")?;
    let n_encoder_layers = keys.size_of_all("num_layers")?;
    let n_decoder_layers = keys.size("num_decoder_layers")?;
    let dropout = keys.number("dropout_rate")?.unwrap_or(0.1);
    let (activation, gated) = feed_forward(model_type, keys)?;
    let buckets = keys.size("relative_attention_num_buckets")?;
    let max_distance = keys.size("relative_attention_max_distance")?;
    Ok(TransformerConfig {
        src_vocab_size: vocab_size,
        tgt_vocab_size: vocab_size,
        d_model: keys.size_of_all("d_model")?,
        n_heads: keys.size_of_all("num_heads")?,
        d_k: Some(d_kv),
        d_v: Some(d_kv),
        d_ff: keys.size_of_all("d_ff")?,
        n_encoder_layers,
        n_decoder_layers: n_decoder_layers.unwrap_or(n_encoder_layers),
        norm: NormPlacement::Pre,
        final_norm: true,
        layer_norm: NormKind::RootMeanSquare,
        layer_norm_eps: keys.number("layer_norm_epsilon")?.unwrap_or(1e-6),
        positions: Positions::RelativeBias {
            buckets: buckets.unwrap_or(32),
            max_distance: max_distance.unwrap_or(128),
        },
        attention_scale: false,
        feed_forward_bias: false,
        // Since version 5, a key of its own.
        generator_scale: keys.flag_or("scale_decoder_outputs", ties_generator)?,
        embedding_scale: false,
        tying: match ties_generator {
            true => WeightTying::All,
            false => WeightTying::SourceTarget,
        },
        activation,
        gated,
        dropout,
        attention_dropout: dropout,
        activation_dropout: dropout,
        ..TransformerConfig::default()
    })
}

/// The activation, and whether it is that of a gate. In `gated-gelu`, GELU is approximated.
fn feed_forward(model_type: ModelType, keys: &Keys) -> Result<(Activation, bool), ModelError> {
    let default = match model_type {
        ModelType::T5 => "relu",
        _ => "gated-gelu",
    };
    let name = keys.text(FEED_FORWARD)?.unwrap_or(default);
    let (of_name, gated) = match name.strip_prefix("gated-") {
        Some("gelu") => ("gelu_new", true),
        Some(activation) => (activation, true),
        None => (name, false),
    };
    let gated = keys.flag_or(GATED, gated)?;
    match keys.text(ACTIVATION)? {
        Some(name) => Ok((activation_named(keys, ACTIVATION, name)?, gated)),
        None => Ok((activation_named(keys, FEED_FORWARD, of_name)?, gated)),
    }
}

/// The keys for a configuration, except those that all types have.
pub(super) fn to_keys(config: &TransformerConfig) -> Vec<(&'static str, Value)> {
    let activation = name_of(config.activation);
    let feed_forward = match (config.gated, config.activation) {
        (true, Activation::GeluTanh) => "gated-gelu".to_owned(),
        (true, _) => format!("gated-{activation}"),
        (false, _) => activation.to_owned(),
    };
    let mut keys = vec![
        ("d_kv", json!(config.d_k())),
        ("d_ff", json!(config.d_ff)),
        ("num_layers", json!(config.n_encoder_layers)),
        ("num_decoder_layers", json!(config.n_decoder_layers)),
        ("num_heads", json!(config.n_heads)),
        ("dropout_rate", json!(config.dropout)),
        ("layer_norm_epsilon", json!(config.layer_norm_eps)),
        (FEED_FORWARD, json!(feed_forward)),
        (ACTIVATION, json!(activation)),
        (GATED, json!(config.gated)),
    ];
    if let Positions::RelativeBias {
        buckets,
        max_distance,
    } = config.positions
    {
        keys.extend([
            ("relative_attention_num_buckets", json!(buckets)),
            ("relative_attention_max_distance", json!(max_distance)),
        ]);
    }
    keys
}

/// The file's key for one of our keys.
pub(super) fn key_of(own: &'static str) -> &'static str {
    match own {
        "tgt_vocab_size" => "vocab_size",
        "n_heads" | "decoder_n_heads" => "num_heads",
        "d_k" | "d_v" => "d_kv",
        "n_encoder_layers" => "num_layers",
        "n_decoder_layers" => "num_decoder_layers",
        "buckets" => "relative_attention_num_buckets",
        "max_distance" => "relative_attention_max_distance",
        "dropout" | "attention_dropout" | "activation_dropout" => "dropout_rate",
        "layer_norm_eps" => "layer_norm_epsilon",
        "d_ff" => "d_ff",
        other => config::key_of(other),
    }
}
