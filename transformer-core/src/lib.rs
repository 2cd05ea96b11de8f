//! The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) as a library on
//! [Burn](https://burn.dev): the model, its weights and decoding, generic over the backend.
//!
//! Each module is one section of the paper; section numbers (§) are the paper's.
//!
//! | module | section |
//! |---|---|
//! | [`Transformer`]: encode, decode, forward | §3 |
//! | [`Encoder`], [`Decoder`] and their layers | §3.1 |
//! | [`Sublayer`]: residual, dropout, [`LayerNorm`] | §3.1, §5.4 |
//! | [`scaled_dot_product_attention`], [`SelfAttention`], [`CrossAttention`] | §3.2 |
//! | [`AttentionMask`] | §3.2.3 |
//! | [`PositionwiseFeedForward`] | §3.3 |
//! | [`TokenEmbedding`], [`Generator`], [`WeightTying`] | §3.4 |
//! | [`PositionalEncoding`] | §3.5 |
//! | [`TransformerConfig`] | Table 3 |
//! | [`greedy`] decoding on a [`DecoderCache`] | §6.1 |
//!
//! # Dimensions
//! Shapes are written in these names, everywhere:
//!
//! | name | meaning |
//! |---|---|
//! | `batch` | sentences computed at a time |
//! | `src_len`, `tgt_len` | tokens of a source, of a target, padding included |
//! | `query_len`, `key_len` | positions that attend, positions attended to |
//! | `d_model` | width of the residual stream |
//! | `n_heads` | attention heads |
//! | `d_k`, `d_v` | width of a head's queries and keys, of its values |
//! | `d_ff` | inner width of the feed-forward network |
//! | `src_vocab_size`, `tgt_vocab_size` | entries of a vocabulary |
//!
//! # Masks
//! `true` means blocked, in every mask; [`AttentionMask`] is the type that says so.

mod attention;
mod cache;
mod config;
mod decoder;
mod decoding;
mod dropout;
mod embedding;
mod encoder;
mod error;
mod feed_forward;
mod files;
mod generator;
mod init;
mod layer_norm;
mod linear;
mod mask;
mod parameters;
mod positional_encoding;
mod pytorch;
mod sublayer;
#[cfg(feature = "text")]
mod text;
mod transformer;
mod weights;

pub use attention::{
    AttentionOutput, CrossAttention, MultiHeadAttention, SelfAttention,
    scaled_dot_product_attention,
};
pub use cache::{DecoderCache, KeyValue, LayerCache, MemoryKeyValue, TargetCache};
pub use config::{
    Activation, LayerConfig, LayerNormFormula, NormPlacement, Positions, Table3, TransformerConfig,
    WeightTying,
};
pub use decoder::{Decoder, DecoderLayer, DecoderMaps, DecoderMasks};
pub use decoding::{
    DecodeOptions, Hypothesis, LengthPenalty, MaxLength, Sampling, Search, Strategy, TargetScore,
    attention_maps, greedy, padded, score, source_batch,
};
pub use dropout::Dropout;
pub use embedding::TokenEmbedding;
pub use encoder::{Encoder, EncoderLayer};
pub use error::{
    ConfigError, DecodeError, DecodeOptionsError, ModelError, PytorchError, SourceProblem,
    TensorProblem,
};
pub use feed_forward::PositionwiseFeedForward;
pub use files::{replace_file, replace_file_with};
pub use generator::Generator;
pub use init::WeightInit;
pub use layer_norm::LayerNorm;
pub use mask::{AttentionMask, padding_positions};
pub use positional_encoding::{PositionalEncoding, sinusoidal_encoding};
pub use pytorch::{PytorchExport, PytorchSystem};
pub use sublayer::Sublayer;
#[cfg(feature = "text")]
pub use text::{TOKENIZER_FILE, TextError, Tokenizer, Translation, Translator};
pub use transformer::{Memory, Transformer};
pub use weights::{CONFIG_FILE, WEIGHTS_FILE};
