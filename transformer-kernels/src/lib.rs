//! The operations of a Transformer, for training (forward and backward) and decoding. Each is fused if the backend
//! has a kernel for it; otherwise a reference implementation composes it from Burn's operations.
//!
//! ```
//! use burn::tensor::Tensor;
//! use burn::tensor::backend::Backend;
//! use transformer_kernels::{ProductPrecision, WeightLayout, layer_norm, linear};
//!
//! /// `[batch, query_len, d_model]` to `[batch, query_len, d_output]`, on any backend.
//! fn normed_linear<B: Backend>(
//!     x: Tensor<B, 3>,
//!     [gamma, beta]: [Tensor<B, 1>; 2],
//!     weight: Tensor<B, 2>,
//! ) -> Tensor<B, 3> {
//!     let x = layer_norm(x, gamma, beta, 1e-5);
//!     linear(x, weight, None, WeightLayout::InputByOutput, ProductPrecision::F32)
//! }
//! ```
//!
//! In Burn, a softmax, a norm or an optimizer step consists of many operations, each of which reads and writes
//! whole tensors. On a CPU, these passes over memory take most of a training step. A kernel computes the whole
//! operation in one pass, with its own gradients. These backends have kernels for `f32`, and so has `Autodiff`
//! over them:
//!
//! | feature | backend | kernels |
//! |---|---|---|
//! | `flex` | `Flex` | `transformer-cpu`: loops over slices, on rayon's threads |
//! | `ndarray` | `NdArray` | the same |
//! | `tch` | `LibTorch` | libtorch's own fused operations; on a CPU, attention over long sequences as above |
//!
//! Every function is generic over the backend. Without a kernel, the reference implementation runs: on another
//! backend, without the backend's feature, for other types than `f32`, and where the kernel is only for training
//! or only for inference. Each kernel is tested against the reference implementation beside it.
//!
//! In training, these backends can multiply matrices in bf16 ([`ProductPrecision`]); everything else stays `f32`.
//!
//! # Dimensions
//! | name | meaning |
//! |---|---|
//! | `batch` | sentences computed at a time |
//! | `query_len`, `key_len` | positions that attend, positions attended to |
//! | `d_model`, `d_ff` | width of the residual stream, of the feed-forward network |
//! | `n_heads` | attention heads |
//! | `d_k`, `d_v` | width of a head's queries and keys, and of its values; `d_head` is either |
//! | `vocab_size` | number of entries of a vocabulary |

// On docs.rs, which has a nightly compiler, each item names the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(any(feature = "flex", feature = "ndarray")),
    allow(
        dead_code,
        reason = "some items are used only by the kernels of some backends"
    )
)]

mod autodiff;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod host;
mod kernels;
mod ops;
mod precision;
mod sizes;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(feature = "tch")]
mod torch;

pub use ops::activation::activation_dropout;
pub use ops::adam::{Moments, adam};
pub use ops::attention::{
    AttentionOutput, AttentionWeights, attention, attention_weights, scaled_dot_product_attention,
};
pub use ops::cross_entropy::{RowLosses, cross_entropy, log_softmax};
pub use ops::dropout::{add_dropout, dropout};
pub use ops::embedding::embedding;
pub use ops::gather_rows::gather_rows;
pub use ops::heads::{join_heads, split_heads};
pub use ops::layer_norm::layer_norm;
pub use ops::linear::linear;
pub use ops::mask::Mask;
pub use ops::operands::Operands;
pub use ops::sums::sum_of_squares;
pub use ops::turn::turn_heads;
pub use precision::multiplies_in;
pub use transformer_cpu::{Activation, AdamStep, Heads, ProductPrecision, WeightLayout};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
