//! Operations of a Transformer in one pass over memory each: those of training forward and back, and
//! those of decoding.
//!
//! Burn composes a softmax, a norm or an optimizer's step from many operations, and each of them reads
//! and writes its tensors anew: on a CPU that is most of a training step. What is here is computed in
//! one pass where the backend is one of those below, or `Autodiff` over it, with gradients of its own.
//!
//! | feature | backend | kernels |
//! |---|---|---|
//! | `flex` | `Flex` | loops over slices, on rayon's threads |
//! | `ndarray` | `NdArray` | the same |
//! | `tch` | `LibTorch` | libtorch's own fused operations |
//!
//! Every function is generic over the backend and answers `None`, or gives back what it took, where
//! there is no kernel: with another backend, without its feature, for numbers other than `f32`, and where
//! gradients are taken, or are not, other than the function says. The caller then composes Burn's
//! operations.

#![cfg_attr(
    not(any(feature = "flex", feature = "ndarray")),
    allow(dead_code, reason = "what only some backends' kernels use")
)]

mod adam;
mod attention;
mod autodiff;
mod cross_entropy;
mod dropout;
#[cfg(any(feature = "flex", feature = "ndarray"))]
mod few_rows;
#[cfg(any(feature = "flex", feature = "ndarray"))]
mod host;
mod kernels;
mod layer_norm;
mod linear;
#[cfg(any(feature = "flex", feature = "ndarray"))]
mod matrix;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod random;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod simd;
#[cfg(feature = "tch")]
mod torch;

pub use adam::{AdamStep, Moments, adam};
pub use attention::{AttentionMask, Heads, attend, cross_attention, self_attention, write_heads};
pub use cross_entropy::{RowLosses, cross_entropy, log_softmax};
pub use dropout::{dropout, dropout_and_add};
pub use layer_norm::layer_norm;
pub use linear::{add_bias_relu_dropout, linear};
