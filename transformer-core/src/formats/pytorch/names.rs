//! Tables of the names and layouts of our parameters in PyTorch systems.
//!
//! A [`Line`] maps modules of ours to theirs with the same parameters. It is read in both directions, so export is the
//! inverse of import by construction.

/// The names in a system's state dict.
pub(crate) struct Names {
    /// Parameters outside the layers, by full paths.
    pub outside: &'static [Line],
    /// An encoder layer.
    pub encoder: Layer,
    /// A decoder layer.
    pub decoder: Layer,
    /// Tables of sines and cosines that the system keeps as buffers.
    pub position_tables: &'static [PositionTable],
}

/// The parameters of a layer, by paths and names relative to the layer.
pub(crate) struct Layer {
    /// The prefix of their layer; `{}` is its index, and `{1}` its number from 1.
    pub theirs: &'static str,
    /// The parameters in it.
    pub lines: &'static [Line],
}

/// Modules of ours and of theirs that hold the same parameters.
///
/// Several on one side are concatenated along their outputs. A tensor in two lines has two names, of which a file may
/// have either.
pub(crate) struct Line {
    /// Paths of our modules.
    pub ours: &'static [&'static str],
    /// Prefixes of the names of their tensors.
    pub theirs: &'static [&'static str],
    /// Alternative prefixes for the first of them: other names of the same tensors.
    pub also: &'static [&'static str],
    /// The tensors in each.
    pub tensors: &'static [TensorNames],
}

/// A tensor's suffixes: of our path and of their name.
pub(crate) struct TensorNames {
    pub ours: &'static str,
    pub theirs: &'static str,
    pub layout: Layout,
}

/// The layout of a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The same on both sides.
    Same,
    /// Ours `[d_input, d_output]`, theirs `[d_output, d_input]`.
    Transposed,
    /// Ours `[n]`, theirs `[1, n]`.
    Row,
    /// Theirs has this many unused rows before ours, written as zeros.
    AfterRows(usize),
}

/// A table of sines and cosines, with as many positions as their class was built for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PositionTable {
    pub name: &'static str,
    /// Its number of dimensions; the last one is `d_model`.
    pub dimensions: usize,
    /// The index of the position dimension; the others have size 1.
    pub positions: usize,
}

pub(crate) const fn tensor(
    ours: &'static str,
    theirs: &'static str,
    layout: Layout,
) -> TensorNames {
    TensorNames {
        ours,
        theirs,
        layout,
    }
}

const MATRIX: &[TensorNames] = &[tensor("", "", Layout::Same)];
const LINEAR: &[TensorNames] = &[
    tensor(".weight", "weight", Layout::Transposed),
    tensor(".bias", "bias", Layout::Same),
];
/// A linear layer with our layout, such as a `Conv1D` of Hugging Face's.
const CONVOLUTION: &[TensorNames] = &[
    tensor(".weight", "weight", Layout::Same),
    tensor(".bias", "bias", Layout::Same),
];
const NORM: &[TensorNames] = &[
    tensor(".gamma", "weight", Layout::Same),
    tensor(".beta", "bias", Layout::Same),
];
/// The Annotated Transformer's layer normalization.
const ANNOTATED_NORM: &[TensorNames] = &[
    tensor(".gamma", "a_2", Layout::Same),
    tensor(".beta", "b_2", Layout::Same),
];

pub(crate) const fn line(
    tensors: &'static [TensorNames],
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
) -> Line {
    Line {
        ours,
        theirs,
        also: &[],
        tensors,
    }
}

pub(crate) const fn matrix(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(MATRIX, ours, theirs)
}

pub(crate) const fn linear(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(LINEAR, ours, theirs)
}

pub(crate) const fn convolution(
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
) -> Line {
    line(CONVOLUTION, ours, theirs)
}

pub(crate) const fn norm(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(NORM, ours, theirs)
}

const fn annotated_norm(ours: &'static [&'static str], theirs: &'static [&'static str]) -> Line {
    line(ANNOTATED_NORM, ours, theirs)
}

pub(crate) const QUERY_KEY_VALUE: &[&str] = &["self_attention.query_key_value"];
pub(crate) const SELF_PROJECTION: &[&str] = &["self_attention.heads.projection"];
pub(crate) const RELATIVE_KEYS: &[&str] = &["self_attention.relative.keys"];
pub(crate) const RELATIVE_VALUES: &[&str] = &["self_attention.relative.values"];
pub(crate) const SELF_NORM: &[&str] = &["self_attention_sublayer.norm"];
pub(crate) const QUERY: &[&str] = &["cross_attention.query"];
pub(crate) const KEY_VALUE: &[&str] = &["cross_attention.key_value"];
pub(crate) const CROSS_PROJECTION: &[&str] = &["cross_attention.heads.projection"];
pub(crate) const CROSS_NORM: &[&str] = &["cross_attention_sublayer.norm"];
pub(crate) const INNER: &[&str] = &["feed_forward.inner"];
pub(crate) const GATE: &[&str] = &["feed_forward.gate"];
pub(crate) const OUTER: &[&str] = &["feed_forward.outer"];
pub(crate) const FEED_FORWARD_NORM: &[&str] = &["feed_forward_sublayer.norm"];

pub(crate) const EMBEDDING: &[&str] = &["embedding.weight"];
pub(crate) const POSITIONS: &[&str] = &["positions.learned"];
pub(crate) const SRC_EMBEDDING: &[&str] = &["src_embedding.weight"];
pub(crate) const TGT_EMBEDDING: &[&str] = &["tgt_embedding.weight"];
pub(crate) const SRC_POSITIONS: &[&str] = &["src_positions.learned"];
pub(crate) const TGT_POSITIONS: &[&str] = &["tgt_positions.learned"];
pub(crate) const ENCODER_BIAS: &[&str] = &["encoder.position_bias.learned"];
pub(crate) const DECODER_BIAS: &[&str] = &["decoder.position_bias.learned"];
pub(crate) const ENCODER_NORM: &[&str] = &["encoder.final_norm"];
pub(crate) const DECODER_NORM: &[&str] = &["decoder.final_norm"];
pub(crate) const GENERATOR: &[&str] = &["generator"];

/// Tables `[1, positions, d_model]`.
const fn batch_first(name: &'static str) -> PositionTable {
    PositionTable {
        name,
        dimensions: 3,
        positions: 1,
    }
}

pub(super) const NOTEBOOK_MINI: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &["embedding.weight"]),
        linear(GENERATOR, &["fc_out."]),
    ],
    encoder: Layer {
        theirs: "encoders.{}.",
        lines: &[
            linear(QUERY_KEY_VALUE, &["mha.W_q.", "mha.W_k.", "mha.W_v."]),
            linear(SELF_PROJECTION, &["mha.W_o."]),
            norm(SELF_NORM, &["norm1."]),
            linear(INNER, &["ffn.net.0."]),
            linear(OUTER, &["ffn.net.2."]),
            norm(FEED_FORWARD_NORM, &["norm2."]),
        ],
    },
    decoder: Layer {
        theirs: "decoders.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &["self_attn.W_q.", "self_attn.W_k.", "self_attn.W_v."],
            ),
            linear(SELF_PROJECTION, &["self_attn.W_o."]),
            norm(SELF_NORM, &["norm1."]),
            linear(QUERY, &["enc_attn.W_q."]),
            linear(KEY_VALUE, &["enc_attn.W_k.", "enc_attn.W_v."]),
            linear(CROSS_PROJECTION, &["enc_attn.W_o."]),
            norm(CROSS_NORM, &["norm2."]),
            linear(INNER, &["ffn.net.0."]),
            linear(OUTER, &["ffn.net.2."]),
            norm(FEED_FORWARD_NORM, &["norm3."]),
        ],
    },
    position_tables: &[batch_first("positional_encoding.pe")],
};

pub(super) const ENCODER_LAYER: Layer = Layer {
    theirs: "",
    lines: &[
        linear(
            QUERY_KEY_VALUE,
            &["self_attn.Wq.", "self_attn.Wk.", "self_attn.Wv."],
        ),
        linear(SELF_PROJECTION, &["self_attn.Wo."]),
        norm(SELF_NORM, &["norm1."]),
        linear(INNER, &["fc1."]),
        linear(OUTER, &["fc2."]),
        norm(FEED_FORWARD_NORM, &["norm2."]),
    ],
};

pub(super) const PAPER_README: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &["src_embed.weight"]),
        matrix(TGT_EMBEDDING, &["tgt_embed.weight"]),
        norm(ENCODER_NORM, &["encoder.norm."]),
        norm(DECODER_NORM, &["decoder.norm."]),
        linear(GENERATOR, &["output_projection."]),
    ],
    encoder: Layer {
        theirs: "encoder.layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &["self_attn.w_q.", "self_attn.w_k.", "self_attn.w_v."],
            ),
            linear(SELF_PROJECTION, &["self_attn.w_o."]),
            norm(SELF_NORM, &["sublayers.0.norm."]),
            linear(INNER, &["feed_forward.linear1."]),
            linear(OUTER, &["feed_forward.linear2."]),
            norm(FEED_FORWARD_NORM, &["sublayers.1.norm."]),
        ],
    },
    decoder: Layer {
        theirs: "decoder.layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &["self_attn.w_q.", "self_attn.w_k.", "self_attn.w_v."],
            ),
            linear(SELF_PROJECTION, &["self_attn.w_o."]),
            norm(SELF_NORM, &["sublayers.0.norm."]),
            linear(QUERY, &["cross_attn.w_q."]),
            linear(KEY_VALUE, &["cross_attn.w_k.", "cross_attn.w_v."]),
            linear(CROSS_PROJECTION, &["cross_attn.w_o."]),
            norm(CROSS_NORM, &["sublayers.1.norm."]),
            linear(INNER, &["feed_forward.linear1."]),
            linear(OUTER, &["feed_forward.linear2."]),
            norm(FEED_FORWARD_NORM, &["sublayers.2.norm."]),
        ],
    },
    position_tables: &[],
};

pub(super) const PRENORM_NOTEBOOK: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &["src_embed.weight"]),
        matrix(TGT_EMBEDDING, &["tgt_embed.weight"]),
        norm(ENCODER_NORM, &["encoder.norm."]),
        norm(DECODER_NORM, &["decoder.norm."]),
        linear(GENERATOR, &["generator."]),
    ],
    encoder: Layer {
        theirs: "encoder.layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &["self_attn.w_q.", "self_attn.w_k.", "self_attn.w_v."],
            ),
            linear(SELF_PROJECTION, &["self_attn.out_proj."]),
            norm(SELF_NORM, &["sublayers.0.norm."]),
            linear(INNER, &["feed_forward.linear1."]),
            linear(OUTER, &["feed_forward.linear2."]),
            norm(FEED_FORWARD_NORM, &["sublayers.1.norm."]),
        ],
    },
    decoder: Layer {
        theirs: "decoder.layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &["self_attn.w_q.", "self_attn.w_k.", "self_attn.w_v."],
            ),
            linear(SELF_PROJECTION, &["self_attn.out_proj."]),
            norm(SELF_NORM, &["sublayers.0.norm."]),
            linear(QUERY, &["src_attn.w_q."]),
            linear(KEY_VALUE, &["src_attn.w_k.", "src_attn.w_v."]),
            linear(CROSS_PROJECTION, &["src_attn.out_proj."]),
            norm(CROSS_NORM, &["sublayers.1.norm."]),
            linear(INNER, &["feed_forward.linear1."]),
            linear(OUTER, &["feed_forward.linear2."]),
            norm(FEED_FORWARD_NORM, &["sublayers.2.norm."]),
        ],
    },
    position_tables: &[batch_first("positional_encoding.pe")],
};

pub(super) const LEARNED_POSITIONS: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &["encoder.embedding_layer.weight"]),
        matrix(SRC_POSITIONS, &["encoder.positional_encoding.weight"]),
        matrix(TGT_EMBEDDING, &["decoder.embedding_layer.weight"]),
        matrix(TGT_POSITIONS, &["decoder.positional_embedding.weight"]),
        linear(GENERATOR, &["decoder.fc."]),
    ],
    encoder: Layer {
        theirs: "encoder.transformer_layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &["attention.W_q.", "attention.W_k.", "attention.W_v."],
            ),
            linear(SELF_PROJECTION, &["attention.fc."]),
            norm(SELF_NORM, &["norm1."]),
            linear(INNER, &["fc.0."]),
            linear(OUTER, &["fc.2."]),
            norm(FEED_FORWARD_NORM, &["norm2."]),
        ],
    },
    decoder: Layer {
        theirs: "decoder.decoder_layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &["attention.W_q.", "attention.W_k.", "attention.W_v."],
            ),
            linear(SELF_PROJECTION, &["attention.fc."]),
            norm(SELF_NORM, &["norm."]),
            linear(QUERY, &["transformer_block.attention.W_q."]),
            linear(
                KEY_VALUE,
                &[
                    "transformer_block.attention.W_k.",
                    "transformer_block.attention.W_v.",
                ],
            ),
            linear(CROSS_PROJECTION, &["transformer_block.attention.fc."]),
            norm(CROSS_NORM, &["transformer_block.norm1."]),
            linear(INNER, &["transformer_block.fc.0."]),
            linear(OUTER, &["transformer_block.fc.2."]),
            norm(FEED_FORWARD_NORM, &["transformer_block.norm2."]),
        ],
    },
    position_tables: &[],
};

pub(super) const TORCH_NN: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &["src_tok_emb.embedding.weight"]),
        matrix(TGT_EMBEDDING, &["tgt_tok_emb.embedding.weight"]),
        norm(ENCODER_NORM, &["transformer.encoder.norm."]),
        norm(DECODER_NORM, &["transformer.decoder.norm."]),
        linear(GENERATOR, &["generator."]),
    ],
    encoder: Layer {
        theirs: "transformer.encoder.layers.{}.",
        lines: &[
            linear(QUERY_KEY_VALUE, &["self_attn.in_proj_"]),
            linear(SELF_PROJECTION, &["self_attn.out_proj."]),
            norm(SELF_NORM, &["norm1."]),
            linear(INNER, &["linear1."]),
            linear(OUTER, &["linear2."]),
            norm(FEED_FORWARD_NORM, &["norm2."]),
        ],
    },
    decoder: Layer {
        theirs: "transformer.decoder.layers.{}.",
        lines: &[
            linear(QUERY_KEY_VALUE, &["self_attn.in_proj_"]),
            linear(SELF_PROJECTION, &["self_attn.out_proj."]),
            norm(SELF_NORM, &["norm1."]),
            linear(
                &["cross_attention.query", "cross_attention.key_value"],
                &["multihead_attn.in_proj_"],
            ),
            linear(CROSS_PROJECTION, &["multihead_attn.out_proj."]),
            norm(CROSS_NORM, &["norm2."]),
            linear(INNER, &["linear1."]),
            linear(OUTER, &["linear2."]),
            norm(FEED_FORWARD_NORM, &["norm3."]),
        ],
    },
    position_tables: &[PositionTable {
        name: "positional_encoding.pos_embedding",
        dimensions: 3,
        positions: 0,
    }],
};

pub(super) const ANNOTATED: Names = Names {
    outside: &[
        matrix(SRC_EMBEDDING, &["src_embed.0.lut.weight"]),
        matrix(TGT_EMBEDDING, &["tgt_embed.0.lut.weight"]),
        annotated_norm(ENCODER_NORM, &["encoder.norm."]),
        annotated_norm(DECODER_NORM, &["decoder.norm."]),
        linear(GENERATOR, &["generator.proj."]),
    ],
    encoder: Layer {
        theirs: "encoder.layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &[
                    "self_attn.linears.0.",
                    "self_attn.linears.1.",
                    "self_attn.linears.2.",
                ],
            ),
            linear(SELF_PROJECTION, &["self_attn.linears.3."]),
            annotated_norm(SELF_NORM, &["sublayer.0.norm."]),
            linear(INNER, &["feed_forward.w_1."]),
            linear(OUTER, &["feed_forward.w_2."]),
            annotated_norm(FEED_FORWARD_NORM, &["sublayer.1.norm."]),
        ],
    },
    decoder: Layer {
        theirs: "decoder.layers.{}.",
        lines: &[
            linear(
                QUERY_KEY_VALUE,
                &[
                    "self_attn.linears.0.",
                    "self_attn.linears.1.",
                    "self_attn.linears.2.",
                ],
            ),
            linear(SELF_PROJECTION, &["self_attn.linears.3."]),
            annotated_norm(SELF_NORM, &["sublayer.0.norm."]),
            linear(QUERY, &["src_attn.linears.0."]),
            linear(KEY_VALUE, &["src_attn.linears.1.", "src_attn.linears.2."]),
            linear(CROSS_PROJECTION, &["src_attn.linears.3."]),
            annotated_norm(CROSS_NORM, &["sublayer.1.norm."]),
            linear(INNER, &["feed_forward.w_1."]),
            linear(OUTER, &["feed_forward.w_2."]),
            annotated_norm(FEED_FORWARD_NORM, &["sublayer.2.norm."]),
        ],
    },
    position_tables: &[batch_first("src_embed.1.pe"), batch_first("tgt_embed.1.pe")],
};
