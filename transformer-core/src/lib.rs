//! The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) on [Burn](https://burn.dev): layers, models,
//! model files and decoding, generic over the backend.
//!
#![cfg_attr(feature = "flex", doc = "```")]
#![cfg_attr(not(feature = "flex"), doc = "```ignore")]
//! use transformer_core::backend::Flex;
//! use transformer_core::burn::tensor::{Int, Tensor};
//! use transformer_core::{DecodeOptions, Request, Search, TransformerConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Default::default();
//! let model = TransformerConfig::notebook_mini(1000).init::<Flex>(42, &device)?;
//!
//! // The logits of a target, given its source.
//! let src = Tensor::<Flex, 2, Int>::from_data([[5, 3, 7, 2]], &device);
//! let tgt = Tensor::<Flex, 2, Int>::from_data([[1, 8, 4]], &device);
//! assert_eq!(model.forward(src, tgt).dims(), [1, 3, 1000]);
//!
//! // Beam search.
//! let search = Search::new(&model, DecodeOptions::beam(4))?;
//! let found = search.run(&[Request::new([5, 3, 7])])?;
//! println!("{:?}", found[0][0].tokens);
//! # Ok(())
//! # }
//! ```
//!
//! Section numbers (§) refer to the paper.
//!
//! | module | section |
//! |---|---|
//! | [`Transformer`]: encode, decode, forward | §3 |
//! | [`Stack`](nn::Stack), [`Layer`](nn::Layer): encoder and decoder | §3.1 |
//! | [`Sublayer`](nn::Sublayer): residual, dropout, [`Norm`](nn::Norm) | §3.1, §5.4 |
//! | [`scaled_dot_product_attention`](nn::scaled_dot_product_attention), [`MultiHeadAttention`](nn::MultiHeadAttention), [`SelfAttention`](nn::SelfAttention) | §3.2 |
//! | [`Mask`](nn::Mask), [`target_mask`](nn::target_mask); for step-by-step decoding, [`Cache`](nn::Cache) | §3.2.3 |
//! | [`FeedForward`](nn::FeedForward) | §3.3 |
//! | [`TokenEmbedding`](nn::TokenEmbedding), [`Generator`](nn::Generator), [`WeightTying`](models::WeightTying) | §3.4 |
//! | [`PositionalEncoding`](nn::PositionalEncoding), or [`PositionBias`](nn::PositionBias), [`Rotary`](nn::Rotary), [`RelativePositions`](nn::RelativePositions) | §3.5 |
//! | [`Recurrence`](nn::Recurrence), an alternative to the decoder's self-attention | not in the paper |
//! | [`TransformerConfig`] | Table 3 |
//! | [`Search`]: greedy decoding, beam search, sampling, on a [`Cache`](nn::Cache) | §6.1 |
//!
//! [`PackedModel`] is the same model with its weights packed for fast decoding on the CPU.
//!
//! The same parts build other models: [`LanguageModel`] is decoder-only, a [`Stack`](nn::Stack) works as an encoder on
//! its own, and decoding accepts any model that implements [`NextToken`](decoding::NextToken).
//!
//! # Modules
//! | module | contents |
//! |---|---|
//! | [`nn`] | the layers and their configurations |
//! | [`models`] | encoder–decoder and language models, and their configuration |
//! | [`decoding`] | search, scoring, and the trait that models implement for it |
//! | [`packed`] | models packed for decoding on the CPU |
//! | [`formats`] | model directories: reading, writing, exporting, quantizing |
//! | `text` | tokenizers and translators (feature `text`) |
//! | [`ops`] | the operations that layers are made of |
//! | [`backend`] | Burn's backends, each with its feature, and devices by name |
//!
//! The crate root re-exports the names that most programs need.
//!
//! # Dimensions
//! Shapes use these names:
//!
//! | name | meaning |
//! |---|---|
//! | `batch` | sequences in a batch |
//! | `src_len`, `tgt_len` | lengths of source and target, padding included |
//! | `query_len`, `key_len` | number of queries and of keys |
//! | `d_model` | width of the residual stream |
//! | `n_heads` | attention heads |
//! | `n_kv_heads` | key/value heads: `n_heads`, or fewer with grouped-query attention |
//! | `d_k`, `d_v` | width of a head's queries and keys, and of its values |
//! | `d_ff` | inner width of the feed-forward network |
//! | `src_vocab_size`, `tgt_vocab_size` | sizes of the vocabularies |
//!
//! # Masks
//! In every mask, `true` means blocked; see [`Mask`](nn::Mask).

// On docs.rs, which has a nightly compiler, each item names the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
pub mod decoding;
pub mod formats;
pub mod models;
pub mod nn;
pub mod packed;
mod special_tokens;
#[cfg(feature = "text")]
pub mod text;

/// Burn, in the version that this crate is made for. Its derive macros, such as `Module`, look for the name `burn`:
/// `use transformer_core::burn;` brings it into a module.
pub use burn;
/// The operations that models are made of.
pub use transformer_kernels as ops;

pub use decoding::{DecodeOptions, Request, Search};
pub use formats::ModelDirectory;
pub use models::{LanguageModel, Transformer, TransformerConfig};
pub use packed::PackedModel;
#[cfg(feature = "text")]
pub use text::{TextGenerator, Tokenizers, Translator};

#[cfg(all(doctest, feature = "text"))]
#[doc = include_str!("../README.md")]
struct Readme;
