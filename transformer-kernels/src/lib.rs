//! Operations of a Transformer, of training forward and backward and of decoding: each fused where the
//! backend has a kernel, else composed of Burn's operations.
//!
//! Burn composes a softmax, a norm or an optimizer's step from many operations, and each of them reads
//! and writes its tensors anew: on a CPU these passes are most of a training step. A kernel computes the
//! whole in one pass over memory, with gradients of its own. These backends have kernels, for `f32`, and
//! so has `Autodiff` over them:
//!
//! | feature | backend | kernels |
//! |---|---|---|
//! | `flex` | `Flex` | loops over slices, on rayon's threads |
//! | `ndarray` | `NdArray` | the same |
//! | `tch` | `LibTorch` | libtorch's own fused operations; on a CPU, attention to long sequences as above |
//!
//! Every function is generic over the backend, and composed where it has no kernel: with another backend,
//! without the backend's feature, for other types than `f32`, and where the kernel is only for training or
//! only for inference. The composition is beside its kernel, which is tested against it.
//!
//! Training can multiply in bf16 on these backends ([`ProductPrecision`]); all other numbers stay `f32`.
//!
//! # Dimensions
//! | name | meaning |
//! |---|---|
//! | `batch` | sentences computed at a time |
//! | `query_len`, `key_len` | positions that attend, positions attended to |
//! | `d_model`, `d_ff` | width of the residual stream, of the feed-forward network |
//! | `n_heads` | attention heads |
//! | `d_k`, `d_v` | width of a head's queries and keys, of its values; `d_head` is either |
//! | `vocab_size` | entries of a vocabulary |
//! | `capacity`, `slot` | positions that a cache can hold, one of them |

#![cfg_attr(
    not(any(feature = "flex", feature = "ndarray")),
    allow(
        dead_code,
        reason = "some items are used by some backends' kernels only"
    )
)]

mod activation;
mod adam;
#[cfg(all(
    target_arch = "x86_64",
    any(feature = "flex", feature = "ndarray", feature = "tch")
))]
mod amx;
mod attention;
mod autodiff;
mod cross_entropy;
mod dropout;
mod embedding;
mod gather_rows;
mod heads;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
pub mod host;
mod kernels;
mod layer_norm;
mod linear;
mod mask;
mod operands;
mod precision;
mod quantized_rows;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod random;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod simd;
mod sizes;
mod sums;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(feature = "tch")]
mod torch;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod transpose;

pub use activation::{Activation, activation_dropout};
pub use adam::{AdamStep, Moments, adam};
pub use attention::{
    AttentionOutput, AttentionWeights, attention, attention_at, scaled_dot_product_attention,
};
pub use cross_entropy::{RowLosses, cross_entropy, log_softmax};
pub use dropout::{add_dropout, dropout};
pub use embedding::embedding;
pub use gather_rows::gather_rows;
pub use heads::{Heads, join_heads, split_heads, write_heads};
pub use layer_norm::layer_norm;
pub use linear::{WeightLayout, linear, linear_at};
pub use mask::Mask;
pub use operands::Operands;
pub use precision::ProductPrecision;
pub use quantized_rows::quantized_rows;
pub use sums::sum_of_squares;
