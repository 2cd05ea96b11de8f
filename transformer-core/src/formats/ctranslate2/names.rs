//! The table of CTranslate2's variables, which are named by the index of their linear layer.

use crate::formats::pytorch::names::{
    CROSS_NORM, CROSS_PROJECTION, DECODER_BIAS, DECODER_NORM, EMBEDDING, ENCODER_BIAS,
    ENCODER_NORM, FEED_FORWARD_NORM, GATE, GENERATOR, INNER, KEY_VALUE, Layer, Layout, Line, Names,
    OUTER, POSITIONS as OF_POSITIONS, QUERY, QUERY_KEY_VALUE, RELATIVE_KEYS, RELATIVE_VALUES,
    SELF_NORM, SELF_PROJECTION, SRC_EMBEDDING, SRC_POSITIONS, TGT_EMBEDDING, TGT_POSITIONS,
    TensorNames, line, linear, matrix, tensor,
};

/// The matrices that a model may share.
pub(super) const OF_SOURCE: &str = "encoder/embeddings_0/weight";
pub(super) const OF_TARGET: &str = "decoder/embeddings/weight";
pub(super) const OF_GENERATOR: &str = "decoder/projection/weight";
pub(super) const BIAS_OF_GENERATOR: &str = "decoder/projection/bias";

/// The name of [`OF_SOURCE`] in older files, whose models have one embedding per word.
pub(super) const OF_SOURCE_ALONE: &str = "encoder/embeddings/weight";

/// The tables of positions.
pub(super) const POSITIONS: [&str; 2] = [
    "encoder/position_encodings/encodings",
    "decoder/position_encodings/encodings",
];

/// T5's bias on scores, which all layers share.
pub(super) const BIASES: [&str; 2] = [
    "encoder/layer_0/self_attention/relative_attention_bias",
    "decoder/layer_0/self_attention/relative_attention_bias",
];

/// The tables of relative positions.
pub(super) const OF_KEYS: &str = "self_attention/relative_position_keys";
const OF_VALUES: &str = "self_attention/relative_position_values";

/// The inner layer of a feed-forward network with a gate, and of one without.
pub(super) const GATED_INNER: &str = "ffn/linear_0_noact/";
pub(super) const INNER_ALONE: &str = "ffn/linear_0/";

const NORM: &[TensorNames] = &[
    tensor(".gamma", "gamma", Layout::Same),
    tensor(".beta", "beta", Layout::Same),
];

const fn norm(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(NORM, ours, theirs)
}

/// The names of a layer. An encoder's has no cross-attention.
const LAYER: &[Line] = &[
    linear(QUERY_KEY_VALUE, &["self_attention/linear_0/"]),
    linear(SELF_PROJECTION, &["self_attention/linear_1/"]),
    matrix(RELATIVE_KEYS, &[OF_KEYS]),
    matrix(RELATIVE_VALUES, &[OF_VALUES]),
    norm(SELF_NORM, &["self_attention/layer_norm/"]),
    linear(QUERY, &["attention/linear_0/"]),
    linear(KEY_VALUE, &["attention/linear_1/"]),
    linear(CROSS_PROJECTION, &["attention/linear_2/"]),
    norm(CROSS_NORM, &["attention/layer_norm/"]),
    linear(GATE, &["ffn/linear_0/"]),
    linear(INNER, &[GATED_INNER]),
    linear(OUTER, &["ffn/linear_1/"]),
    norm(FEED_FORWARD_NORM, &["ffn/layer_norm/"]),
];

pub(super) const NAMES: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &[OF_SOURCE]),
        matrix(TGT_EMBEDDING, &[OF_TARGET]),
        matrix(EMBEDDING, &[OF_TARGET]),
        matrix(SRC_POSITIONS, &[POSITIONS[0]]),
        matrix(TGT_POSITIONS, &[POSITIONS[1]]),
        matrix(OF_POSITIONS, &[POSITIONS[1]]),
        matrix(ENCODER_BIAS, &[BIASES[0]]),
        matrix(DECODER_BIAS, &[BIASES[1]]),
        norm(&["src_embedding_norm"], &["encoder/layernorm_embedding/"]),
        norm(&["tgt_embedding_norm"], &["decoder/layernorm_embedding/"]),
        norm(&["embedding_norm"], &["decoder/layernorm_embedding/"]),
        norm(ENCODER_NORM, &["encoder/layer_norm/"]),
        norm(DECODER_NORM, &["decoder/layer_norm/"]),
        linear(GENERATOR, &["decoder/projection/"]),
    ],
    encoder: Layer {
        theirs: "encoder/layer_{}/",
        lines: LAYER,
    },
    decoder: Layer {
        theirs: "decoder/layer_{}/",
        lines: LAYER,
    },
    position_tables: &[],
};
