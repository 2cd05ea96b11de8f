//! The kernels of flex and ndarray, as functions on slices, independent of tensors and backends. libtorch's attention
//! to long sequences is among them. `backend`, `slices` and `attention::tensors` are the bridge from tensors to slices.
//!
//! Slices hold tensors in row-major order. A function checks the lengths of its slices once, when it is
//! called, and panics with both sizes where they do not agree. Work is dealt to rayon's threads in tasks
//! whose sums do not depend on the number of threads.
//!
//! [`PackedMatrix`] and [`rows`] are for decoding with a model that is not trained any more: they allocate
//! nothing, and compute on one thread where that is asked for.

mod activation;
mod adam;
mod attention;
mod backend;
mod bf16;
mod buffer;
mod columns;
mod dropout;
mod embedding;
mod few_rows;
mod heads;
mod linear;
mod loss;
mod mask;
mod matrix;
mod norm;
mod packed;
pub mod rows;
mod slices;
mod sums;

pub use activation::{relu_dropout, relu_dropout_backward};
pub use adam::adam;
#[cfg(feature = "tch")]
pub(crate) use attention::tensors as tensor_attention;
pub use attention::{
    Attended, AttendedView, HeadGradients, attention, attention_backward, attention_forward,
};
pub use bf16::multiplies_bf16_fast;
pub use buffer::sized;
pub use dropout::{add_dropout, dropout};
pub use embedding::{embedding, embedding_gradient};
pub use heads::{HeadRows, join_heads, write_heads};
pub use linear::{LinearShape, linear, linear_input_gradient, linear_weight_gradient};
pub use loss::{RowLoss, cross_entropy, cross_entropy_backward, log_softmax};
pub use mask::Mask;
pub use norm::{NormGradients, Normed, layer_norm, layer_norm_backward};
pub use packed::{PackedMatrix, PackedPrecision, ProductBuffer, Threads};
#[cfg(feature = "tch")]
pub(crate) use slices::Slices;
pub use sums::{sum_of_squares, sum_rows};

pub use crate::kernels::{AttentionParents, NormParents};
pub use crate::random::Keep;
pub use crate::simd::check_simd;

/// Numbers in one task of a thread. It does not depend on the number of threads, so that neither do sums.
const TASK: usize = 16_384;

/// Rows of a width in one task of a thread.
fn rows_of_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// Numbers in the rows of a task; at least one, as `chunks` requires.
fn task_of_rows(width: usize) -> usize {
    rows_of_task(width) * width.max(1)
}
