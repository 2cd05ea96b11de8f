//! The tables of tensor names: one for Marian, M2M100, BART and mBART, one for T5's family, and one for GPT-2's. A line
//! applies to the types with its parameters: learned positions and embedding norms to BART and mBART, final norms to
//! M2M100 and mBART.

use crate::formats::pytorch::names::{
    CROSS_NORM, CROSS_PROJECTION, DECODER_BIAS, DECODER_NORM, EMBEDDING, ENCODER_BIAS,
    ENCODER_NORM, FEED_FORWARD_NORM, GATE, GENERATOR, INNER, KEY_VALUE, Layer, Layout, Line, Names,
    OUTER, POSITIONS, PositionTable, QUERY, QUERY_KEY_VALUE, SELF_NORM, SELF_PROJECTION,
    SRC_EMBEDDING, SRC_POSITIONS, TGT_EMBEDDING, TGT_POSITIONS, TensorNames, convolution, line,
    linear, matrix, norm, tensor,
};

/// The prefix of all names in BART's family except those of the projection to logits. Files saved by a class without
/// this projection, such as `BartModel`, lack it.
pub(super) const PREFIX: &str = "model.";

/// The same in GPT-2's family, whose class without the projection is `GPT2Model`.
pub(super) const GPT2_PREFIX: &str = "transformer.";

/// The matrix of all embeddings. A model with separate vocabularies has none.
pub(super) const SHARED: &str = "model.shared.weight";

/// The matrices of a model with separate vocabularies.
pub(super) const EMBEDDINGS: [&str; 2] = [OF_SOURCE, OF_TARGET];
const OF_SOURCE: &str = "model.encoder.embed_tokens.weight";
const OF_TARGET: &str = "model.decoder.embed_tokens.weight";

/// The bias of the logits, `[1, vocab_size]`; a buffer in PyTorch.
pub(super) const LOGITS_BIAS: &str = "final_logits_bias";

/// Tensors of older files that the model does not use: version numbers of fairseq's classes, and M2M100's tables of
/// sines and cosines, which its class computes; and of the first T5, a bias on the scores of cross-attention.
pub(super) const IGNORED: [&str; 5] = [
    "model.encoder.version",
    "model.decoder.version",
    "model.encoder.embed_positions.weights",
    "model.decoder.embed_positions.weights",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
];

/// Whether a tensor of GPT-2's family is a buffer of older versions of its class: the causal mask of a layer, and the
/// score of hidden positions.
pub(super) fn is_gpt2_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

/// Whether files may have this tensor although no class of the family does: a bias of the projection to logits, the
/// head of a classifier, and a buffer of fairseq. Hugging Face ignores it with a warning.
pub(super) fn is_unused(name: &str) -> bool {
    name == "lm_head.bias"
        || name.starts_with("classification_head.")
        || name.ends_with(".embed_positions._float_tensor")
}

/// BART's and mBART's first position is at row 2.
const AFTER_TWO_ROWS: &[TensorNames] = &[tensor("", "", Layout::AfterRows(2))];

const LOGITS: &[TensorNames] = &[
    tensor(".weight", "lm_head.weight", Layout::Transposed),
    tensor(".bias", LOGITS_BIAS, Layout::Row),
];

const SRC_EMBEDDING_NORM: &[&str] = &["src_embedding_norm"];
const TGT_EMBEDDING_NORM: &[&str] = &["tgt_embedding_norm"];

/// The queries, keys and values of self-attention, in the order of our joint matrix.
const SELF_ATTENTION: &[&str] = &[
    "self_attn.q_proj.",
    "self_attn.k_proj.",
    "self_attn.v_proj.",
];

/// A position table, as in older files of Marian.
const fn table(name: &'static str) -> PositionTable {
    PositionTable {
        name,
        dimensions: 2,
        positions: 0,
    }
}

/// The names of a layer. An encoder's has no cross-attention.
const BART_LAYER: &[Line] = &[
    linear(QUERY_KEY_VALUE, SELF_ATTENTION),
    linear(SELF_PROJECTION, &["self_attn.out_proj."]),
    norm(SELF_NORM, &["self_attn_layer_norm."]),
    linear(QUERY, &["encoder_attn.q_proj."]),
    linear(KEY_VALUE, &["encoder_attn.k_proj.", "encoder_attn.v_proj."]),
    linear(CROSS_PROJECTION, &["encoder_attn.out_proj."]),
    norm(CROSS_NORM, &["encoder_attn_layer_norm."]),
    linear(INNER, &["fc1."]),
    linear(OUTER, &["fc2."]),
    norm(FEED_FORWARD_NORM, &["final_layer_norm."]),
];

pub(super) const BART: Names = Names {
    outside: &[
        Line {
            also: &[OF_SOURCE],
            ..matrix(SRC_EMBEDDING, &[SHARED])
        },
        matrix(TGT_EMBEDDING, &[OF_TARGET]),
        line(
            AFTER_TWO_ROWS,
            SRC_POSITIONS,
            &["model.encoder.embed_positions.weight"],
        ),
        line(
            AFTER_TWO_ROWS,
            TGT_POSITIONS,
            &["model.decoder.embed_positions.weight"],
        ),
        norm(SRC_EMBEDDING_NORM, &["model.encoder.layernorm_embedding."]),
        norm(TGT_EMBEDDING_NORM, &["model.decoder.layernorm_embedding."]),
        norm(ENCODER_NORM, &["model.encoder.layer_norm."]),
        norm(DECODER_NORM, &["model.decoder.layer_norm."]),
        line(LOGITS, GENERATOR, &[""]),
    ],
    encoder: Layer {
        theirs: "model.encoder.layers.{}.",
        lines: BART_LAYER,
    },
    decoder: Layer {
        theirs: "model.decoder.layers.{}.",
        lines: BART_LAYER,
    },
    position_tables: &[
        table("model.encoder.embed_positions.weight"),
        table("model.decoder.embed_positions.weight"),
    ],
};

/// The name of the inner layer of T5's feed-forward network, without and with a gate.
pub(super) const T5_INNER: [&str; 2] = ["DenseReluDense.wi.", "DenseReluDense.wi_1."];

/// The queries, keys and values of T5's self-attention.
const T5_SELF_ATTENTION: &[&str] = &[
    "layer.0.SelfAttention.q.",
    "layer.0.SelfAttention.k.",
    "layer.0.SelfAttention.v.",
];

/// The names of T5's family, with a gate.
pub(super) const T5: Names = Names {
    outside: &[
        Line {
            also: &["encoder.embed_tokens.weight"],
            ..matrix(SRC_EMBEDDING, &["shared.weight"])
        },
        matrix(TGT_EMBEDDING, &["decoder.embed_tokens.weight"]),
        matrix(
            ENCODER_BIAS,
            &["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"],
        ),
        matrix(
            DECODER_BIAS,
            &["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"],
        ),
        norm(ENCODER_NORM, &["encoder.final_layer_norm."]),
        norm(DECODER_NORM, &["decoder.final_layer_norm."]),
        linear(GENERATOR, &["lm_head."]),
    ],
    encoder: Layer {
        theirs: "encoder.block.{}.",
        lines: &[
            linear(QUERY_KEY_VALUE, T5_SELF_ATTENTION),
            linear(SELF_PROJECTION, &["layer.0.SelfAttention.o."]),
            norm(SELF_NORM, &["layer.0.layer_norm."]),
            linear(GATE, &["layer.1.DenseReluDense.wi_0."]),
            linear(INNER, &["layer.1.DenseReluDense.wi_1."]),
            linear(OUTER, &["layer.1.DenseReluDense.wo."]),
            norm(FEED_FORWARD_NORM, &["layer.1.layer_norm."]),
        ],
    },
    decoder: Layer {
        theirs: "decoder.block.{}.",
        lines: &[
            linear(QUERY_KEY_VALUE, T5_SELF_ATTENTION),
            linear(SELF_PROJECTION, &["layer.0.SelfAttention.o."]),
            norm(SELF_NORM, &["layer.0.layer_norm."]),
            linear(QUERY, &["layer.1.EncDecAttention.q."]),
            linear(
                KEY_VALUE,
                &["layer.1.EncDecAttention.k.", "layer.1.EncDecAttention.v."],
            ),
            linear(CROSS_PROJECTION, &["layer.1.EncDecAttention.o."]),
            norm(CROSS_NORM, &["layer.1.layer_norm."]),
            linear(GATE, &["layer.2.DenseReluDense.wi_0."]),
            linear(INNER, &["layer.2.DenseReluDense.wi_1."]),
            linear(OUTER, &["layer.2.DenseReluDense.wo."]),
            norm(FEED_FORWARD_NORM, &["layer.2.layer_norm."]),
        ],
    },
    position_tables: &[],
};

/// The names of GPT-2's family. Its linear layers are `Conv1D`s, except the projection to logits.
pub(super) const GPT2: Names = Names {
    outside: &[
        matrix(EMBEDDING, &["transformer.wte.weight"]),
        matrix(POSITIONS, &["transformer.wpe.weight"]),
        norm(DECODER_NORM, &["transformer.ln_f."]),
        linear(GENERATOR, &["lm_head."]),
    ],
    encoder: Layer {
        theirs: "",
        lines: &[],
    },
    decoder: Layer {
        theirs: "transformer.h.{}.",
        lines: &[
            convolution(QUERY_KEY_VALUE, &["attn.c_attn."]),
            convolution(SELF_PROJECTION, &["attn.c_proj."]),
            norm(SELF_NORM, &["ln_1."]),
            convolution(INNER, &["mlp.c_fc."]),
            convolution(OUTER, &["mlp.c_proj."]),
            norm(FEED_FORWARD_NORM, &["ln_2."]),
        ],
    },
    position_tables: &[],
};
