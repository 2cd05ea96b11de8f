//! The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) as a library on
//! [Burn](https://burn.dev): the model, its weights and decoding, generic over the backend.
//!
//! Section numbers (§) are the paper's.
//!
//! | module | section |
//! |---|---|
//! | [`Transformer`]: encode, decode, forward | §3 |
//! | [`Stack`](nn::Stack), [`Layer`](nn::Layer): encoder and decoder | §3.1 |
//! | [`Sublayer`](nn::Sublayer): residual, dropout, [`Norm`](nn::Norm) | §3.1, §5.4 |
//! | [`scaled_dot_product_attention`](nn::scaled_dot_product_attention), [`MultiHeadAttention`](nn::MultiHeadAttention), [`SelfAttention`](nn::SelfAttention) | §3.2 |
//! | [`Mask`](nn::Mask), [`target_mask`](nn::target_mask); with a cache, [`Cache`](nn::Cache) | §3.2.3 |
//! | [`FeedForward`](nn::FeedForward) | §3.3 |
//! | [`TokenEmbedding`](nn::TokenEmbedding), [`Generator`](nn::Generator), [`WeightTying`](models::WeightTying) | §3.4 |
//! | [`PositionalEncoding`](nn::PositionalEncoding); in its place [`PositionBias`](nn::PositionBias), [`Rotary`](nn::Rotary) | §3.5 |
//! | [`Recurrence`](nn::Recurrence), in place of the decoder's self-attention | none |
//! | [`TransformerConfig`] | Table 3 |
//! | [`Search`]: greedy decoding, beam search, sampling, on a [`Cache`](nn::Cache) | §6.1 |
//!
//! [`PackedModel`] is the model once more, for decoding on a CPU only.
//!
//! The same parts make other models: [`LanguageModel`] is the decoder alone, a [`Stack`](nn::Stack) can be used
//! without a decoder, and decoding works with any model that is a [`NextToken`](decoding::NextToken).
//!
//! # Modules
//! | module | has |
//! |---|---|
//! | [`nn`] | the layers, and their configurations |
//! | [`models`] | encoder–decoder and language models, and their configuration |
//! | [`decoding`] | search, scores, and the trait of what can be searched with |
//! | [`packed`] | models for decoding on a CPU |
//! | [`formats`] | model directories: read, written, exported, quantized |
//! | `text` | tokenizers and translators, with the feature `text` |
//! | [`ops`] | the operations that layers are made of |
//!
//! The names that most programs need are at the root, too.
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
//! `true` means blocked in every mask; see [`Mask`](nn::Mask).

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
