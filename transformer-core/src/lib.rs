//! The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) as a library on
//! [Burn](https://burn.dev): the model, its weights and decoding, generic over the backend.
//!
//! Each file is one section of the paper; section numbers (§) are the paper's.
//!
//! | module | section |
//! |---|---|
//! | [`Transformer`]: encode, decode, forward | §3 |
//! | [`Encoder`], [`Decoder`] and their layers | §3.1 |
//! | [`Sublayer`]: residual, dropout, [`LayerNorm`] | §3.1, §5.4 |
//! | [`scaled_dot_product_attention`], [`MultiHeadAttention`], [`SelfAttention`] | §3.2 |
//! | [`AttentionMask`] | §3.2.3 |
//! | [`PositionwiseFeedForward`] | §3.3 |
//! | [`TokenEmbedding`], [`Generator`], [`WeightTying`] | §3.4 |
//! | [`PositionalEncoding`] | §3.5 |
//! | [`TransformerConfig`] | Table 3 |
//! | [`Search`]: greedy decoding, beam search, sampling, on a [`DecoderCache`] | §6.1 |
//!
//! `PackedTransformer`, with the feature `flex` or `ndarray`, is the model once more, for decoding on a CPU only.
//!
//! The same parts make other models: [`LanguageModel`] is the decoder alone, an [`Encoder`] can be used
//! without a decoder, and decoding works with any model that is a [`NextToken`].
//!
//! # Dimensions
//! All shapes are in these names:
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
//! `true` means blocked in every mask; see [`AttentionMask`].

mod attention;
mod cache;
mod config;
mod config_file;
mod decoder;
mod decoder_cache;
mod decoding;
mod dropout;
mod embedding;
mod encoder;
mod encoder_decoder;
mod error;
mod feed_forward;
mod files;
mod generator;
mod hugging_face;
mod init;
mod language_model;
mod language_model_config;
mod layer_config;
mod layer_norm;
mod linear;
mod mask;
mod multi_head_attention;
#[cfg(any(feature = "flex", feature = "ndarray"))]
mod packed;
mod parameters;
mod positional_encoding;
mod precision;
mod presets;
mod pytorch;
mod quantized;
mod self_attention;
mod special_tokens;
mod stored_weights;
mod sublayer;
#[cfg(feature = "text")]
mod text;
mod tokenizer_files;
mod transformer;
mod validation;
mod weight_files;
mod weights;

/// The operations that models are made of.
pub use transformer_kernels as ops;

pub use attention::{
    AttentionHeads, AttentionOutput, MultiHeadAttentionConfig, scaled_dot_product_attention,
};
pub use config::TransformerConfig;
pub use config_file::{CONFIG_FILE, DirectoryFormat, is_quantized, load_config, save_config};
pub use decoder::{
    CrossAttention, Decoder, DecoderConfig, DecoderLayer, DecoderLayerOutput, DecoderMasks,
    DecoderOutput, Memory,
};
pub use decoder_cache::DecoderCache;
pub use decoding::{
    DecodeOptions, Ensemble, Hypothesis, LengthPenalty, MaxLength, NextToken, NextTokenOutput,
    Request, Sampling, Search, SourceTarget, Strategy, TargetScore, Vocabulary, greedy, padded,
    score,
};
pub use dropout::Dropout;
pub use embedding::{EmbeddingConfig, TokenEmbedding};
pub use encoder::{Encoder, EncoderConfig, EncoderLayer, EncoderLayerOutput, EncoderOutput};
pub use encoder_decoder::AttentionMaps;
pub use error::{
    ConfigError, DecodeError, DecodeOptionsError, ModelError, PytorchError, RequestProblem,
    TensorProblem,
};
pub use feed_forward::{FeedForwardConfig, PositionwiseFeedForward};
pub use files::{remove_unfinished_files, rename_and_sync, replace_file, replace_file_with};
pub use generator::{Generator, GeneratorConfig};
pub use hugging_face::{GENERATION_FILE, unused_tensors};
pub use init::WeightInit;
pub use language_model::LanguageModel;
pub use language_model_config::LanguageModelConfig;
pub use layer_config::{LayerConfig, LayerNormFormula, NormPlacement, Positions, WeightTying};
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use mask::{AttentionMask, padding_positions};
pub use multi_head_attention::{AttentionInput, MultiHeadAttention};
#[cfg(any(feature = "flex", feature = "ndarray"))]
pub use ops::host::PackedPrecision;
pub use ops::{Activation, AttentionWeights, ProductPrecision};
#[cfg(any(feature = "flex", feature = "ndarray"))]
pub use packed::{PackedState, PackedTransformer};
pub use positional_encoding::{PositionalEncoding, PositionalEncodingConfig, sinusoidal_encoding};
pub use precision::MixedPrecision;
pub use presets::Table3;
pub use pytorch::{PytorchExport, PytorchSystem};
pub use quantized::quantize;
pub use self_attention::SelfAttention;
pub use special_tokens::{SPECIAL_TOKENS, SpecialTokens};
pub use stored_weights::{StoredWeights, TensorKind};
pub use sublayer::{Sublayer, SublayerConfig};
#[cfg(feature = "text")]
pub use text::{MAX_TOKENS, TextError, TextSearch, Tokenizer, Tokenizers, Translation, Translator};
pub use tokenizer_files::{
    ADDED_TOKENS_FILE, SHARED_PIECES_FILE, SOURCE_PIECES_FILE, SOURCE_TOKENIZER_FILE,
    SPECIAL_TOKENS_FILE, TARGET_PIECES_FILE, TARGET_TOKENIZER_FILE, TARGET_VOCABULARY_FILE,
    TOKENIZER_FILE, TOKENIZER_FILES, TOKENIZER_SETTINGS_FILE, VOCABULARY_FILE,
};
pub use transformer::{Encoded, Transformer};
pub use weights::{WEIGHTS_FILE, load_weights, run_of_checkpoint, save_weights};
