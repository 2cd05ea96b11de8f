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

pub mod decoding;
pub mod formats;
pub mod models;
pub mod nn;
pub mod packed;
mod special_tokens;
#[cfg(feature = "text")]
pub mod text;

/// The operations that models are made of.
pub use transformer_kernels as ops;

pub use decoding::{DecodeOptions, Request, Search};
pub use formats::ModelDirectory;
pub use models::{LanguageModel, Transformer, TransformerConfig};
pub use packed::PackedModel;
#[cfg(feature = "text")]
pub use text::{Tokenizers, Translator};
