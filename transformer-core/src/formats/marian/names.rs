//! The table of Marian's tensors.

use crate::formats::pytorch::names::{
    CROSS_NORM, CROSS_PROJECTION, DECODER_NORM, ENCODER_NORM, FEED_FORWARD_NORM, GENERATOR, INNER,
    KEY_VALUE, Layer, Layout, Line, Names, OUTER, QUERY, QUERY_KEY_VALUE, SELF_NORM,
    SELF_PROJECTION, SRC_EMBEDDING, SRC_POSITIONS, TGT_EMBEDDING, TGT_POSITIONS, TensorNames, line,
    matrix, tensor,
};

/// The embeddings: of both sides, of the source, and of the target.
pub(super) const EMBEDDINGS: [&str; 3] = ["Wemb", "encoder_Wemb", "decoder_Wemb"];
/// The table of learned positions.
pub(super) const POSITIONS: &str = "Wpos";

/// Whether a tensor is the multiplier that Marian's 8-bit inference quantizes the input of a matrix with.
pub(super) fn is_multiplier(name: &str) -> bool {
    name.ends_with("_QuantMultA")
}

/// The generator's matrix with a row per token, as in Marian 1.10 and later. Before, it was `[d_model, vocab_size]`.
const GENERATOR_ROWS: &str = "decoder_ff_logit_out_Wt";

/// Whether the rows of a matrix belong to tokens or positions. Other matrices are `[d_input, d_output]`.
pub(super) fn is_table(name: &str) -> bool {
    name == POSITIONS || name == GENERATOR_ROWS || EMBEDDINGS.contains(&name)
}

const WEIGHT: &[TensorNames] = &[tensor(".weight", "", Layout::Transposed)];
const BIAS: &[TensorNames] = &[tensor(".bias", "", Layout::Row)];
/// After a sublayer, and before it (`_pre`).
const NORM: &[TensorNames] = &[
    tensor(".gamma", "scale", Layout::Row),
    tensor(".gamma", "scale_pre", Layout::Row),
    tensor(".beta", "bias", Layout::Row),
    tensor(".beta", "bias_pre", Layout::Row),
];

const fn weight(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(WEIGHT, ours, theirs)
}

const fn bias(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(BIAS, ours, theirs)
}

const fn norm(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(NORM, ours, theirs)
}

/// The names of a layer. An encoder's has no cross-attention and no recurrence.
const LAYER: &[Line] = &[
    weight(QUERY_KEY_VALUE, &["self_Wq", "self_Wk", "self_Wv"]),
    bias(QUERY_KEY_VALUE, &["self_bq", "self_bk", "self_bv"]),
    weight(SELF_PROJECTION, &["self_Wo"]),
    bias(SELF_PROJECTION, &["self_bo"]),
    norm(SELF_NORM, &["self_Wo_ln_"]),
    weight(&["recurrence.input"], &["rnn_W"]),
    weight(&["recurrence.forget"], &["rnn_Wf"]),
    bias(&["recurrence.forget"], &["rnn_bf"]),
    // After the recurrence, and before it.
    norm(SELF_NORM, &["rnn_ffn_ln_"]),
    norm(SELF_NORM, &["rnn_ln_"]),
    weight(QUERY, &["context_Wq"]),
    bias(QUERY, &["context_bq"]),
    weight(KEY_VALUE, &["context_Wk", "context_Wv"]),
    bias(KEY_VALUE, &["context_bk", "context_bv"]),
    weight(CROSS_PROJECTION, &["context_Wo"]),
    bias(CROSS_PROJECTION, &["context_bo"]),
    norm(CROSS_NORM, &["context_Wo_ln_"]),
    weight(INNER, &["ffn_W1"]),
    bias(INNER, &["ffn_b1"]),
    weight(OUTER, &["ffn_W2"]),
    bias(OUTER, &["ffn_b2"]),
    norm(FEED_FORWARD_NORM, &["ffn_ffn_ln_"]),
];

pub(super) const NAMES: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &["Wemb"]),
        matrix(SRC_EMBEDDING, &["encoder_Wemb"]),
        matrix(TGT_EMBEDDING, &["Wemb"]),
        matrix(TGT_EMBEDDING, &["decoder_Wemb"]),
        matrix(SRC_POSITIONS, &[POSITIONS]),
        matrix(TGT_POSITIONS, &[POSITIONS]),
        norm(&["src_embedding_norm"], &["encoder_emb_ln_"]),
        norm(&["tgt_embedding_norm"], &["decoder_emb_ln_"]),
        norm(ENCODER_NORM, &["encoder_top_ln_"]),
        norm(DECODER_NORM, &["decoder_top_ln_"]),
        weight(GENERATOR, &[GENERATOR_ROWS]),
        weight(GENERATOR, &["decoder_ff_logit_out_W"]),
        bias(GENERATOR, &["decoder_ff_logit_out_b"]),
    ],
    encoder: Layer {
        theirs: "encoder_l{1}_",
        lines: LAYER,
    },
    decoder: Layer {
        theirs: "decoder_l{1}_",
        lines: LAYER,
    },
    position_tables: &[],
};
