//! The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) as a library on
//! [Burn](https://burn.dev): the model, its weights and decoding, generic over the backend.
//!
//! Section numbers (§) are the paper's.
//!
//! | module | section |
//! |---|---|
//! | [`Transformer`]: encode, decode, forward | §3 |
//! | [`Stack`], [`Layer`]: encoder and decoder | §3.1 |
//! | [`Sublayer`]: residual, dropout, [`Norm`] | §3.1, §5.4 |
//! | [`scaled_dot_product_attention`], [`MultiHeadAttention`], [`SelfAttention`] | §3.2 |
//! | [`Mask`] | §3.2.3 |
//! | [`FeedForward`] | §3.3 |
//! | [`TokenEmbedding`], [`Generator`], [`WeightTying`] | §3.4 |
//! | [`PositionalEncoding`]; in its place [`PositionBias`], [`Rotary`] | §3.5 |
//! | [`Recurrence`], in place of the decoder's self-attention | none |
//! | [`TransformerConfig`] | Table 3 |
//! | [`Search`]: greedy decoding, beam search, sampling, on a [`Cache`] | §6.1 |
//!
//! [`PackedModel`] is the model once more, for decoding on a CPU only.
//!
//! The same parts make other models: [`LanguageModel`] is the decoder alone, a [`Stack`] can be used
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
//! | `n_kv_heads` | heads of keys and values: `n_heads`, unless groups of heads share them |
//! | `d_k`, `d_v` | width of a head's queries and keys, of its values |
//! | `d_ff` | inner width of the feed-forward network |
//! | `src_vocab_size`, `tgt_vocab_size` | entries of a vocabulary |
//!
//! # Masks
//! `true` means blocked in every mask; see [`Mask`].

mod decoding;
mod formats;
mod models;
mod nn;
mod packed;
mod special_tokens;
#[cfg(feature = "text")]
mod text;

/// The operations that models are made of.
pub use transformer_kernels as ops;

pub use decoding::{
    DecodeError, DecodeOptions, DecodeOptionsError, Ensemble, Hypothesis, LengthPenalty, MaxLength,
    Next, NextToken, Request, RequestProblem, Sampling, Search, SourceTarget, Strategy,
    TargetScore, Vocabulary, greedy, padded, score,
};
pub use formats::directory::ModelDirectory;
pub use formats::error::{ModelError, PytorchError, TensorProblem};
pub use formats::files::{
    remove_unfinished_files, rename_and_sync, replace_file, replace_file_with,
};
pub use formats::format::{Files, Format, Opened, run_of_checkpoint};
pub use formats::names::{
    ADDED_TOKENS_FILE, CONFIG_FILE, GENERATION_FILE, SHARED_PIECES_FILE, SOURCE_PIECES_FILE,
    SOURCE_TOKENIZER_FILE, SPECIAL_TOKENS_FILE, TARGET_PIECES_FILE, TARGET_TOKENIZER_FILE,
    TARGET_VOCABULARY_FILE, TOKENIZER_FILE, TOKENIZER_FILES, TOKENIZER_SETTINGS_FILE,
    VOCABULARY_FILE, WEIGHTS_FILE,
};
pub use formats::own::config::{load_config, save_config};
pub use formats::own::weights::{load_weights, save_weights};
pub use formats::parameter::StoredParameter;
pub use formats::pytorch::{PytorchExport, PytorchSystem};
pub use formats::quantize::quantize;
pub use formats::stored_weights::{StoredWeights, TensorKind};
pub use models::attention_maps::AttentionMaps;
pub use models::config::TransformerConfig;
pub use models::language_model::LanguageModel;
pub use models::precision::MixedPrecision;
pub use models::presets::Table3;
pub use models::transformer::{Encoded, Transformer};
pub use models::tying::WeightTying;
pub use nn::attention::{AttentionConfig, AttentionOutput, scaled_dot_product_attention};
pub use nn::block::{Block, BlockOutput, BlockState, Context};
pub use nn::cache::{Cache, KeyValue, LayerState};
pub use nn::dropout::Dropout;
pub use nn::embedding::{EmbeddingConfig, TokenEmbedding};
pub use nn::error::ConfigError;
pub use nn::feed_forward::{FeedForward, FeedForwardConfig};
pub use nn::generator::{Generator, GeneratorConfig};
pub use nn::heads::AttentionHeads;
pub use nn::init::WeightInit;
pub use nn::layer::{Layer, LayerConfig, Mixer};
pub use nn::mask::{padding_positions, target_mask};
pub use nn::multi_head_attention::{AttentionInput, MultiHeadAttention};
pub use nn::norm::{Norm, NormConfig, NormKind};
pub use nn::position_bias::{BiasKind, Buckets, PositionBias, PositionBiasConfig};
pub use nn::positions::{
    PositionalEncoding, PositionalEncodingConfig, Positions, sinusoidal_encoding,
};
pub use nn::recurrence::{Recurrence, RecurrenceConfig};
pub use nn::rotary::Rotary;
pub use nn::self_attention::SelfAttention;
pub use nn::stack::{Memory, Stack, StackConfig, StackOutput};
pub use nn::sublayer::{NormPlacement, Sublayer, SublayerConfig};
pub use ops::{Activation, AttentionWeights, Mask, ProductPrecision};
pub use packed::{PackedModel, PackedState};
pub use special_tokens::{SPECIAL_TOKENS, SpecialTokens};
#[cfg(feature = "text")]
pub use text::{MAX_TOKENS, TextError, Tokenizer, Tokenizers, Translation, Translator};
pub use transformer_cpu::{PackedPrecision, Threads};
