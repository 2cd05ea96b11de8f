//! Kernels of a Transformer on slices, for CPUs: independent of tensors and of Burn's backends.
//!
//! `transformer-kernels` calls them with the tensors of flex and ndarray, and its attention to long sequences and its
//! optimizer's step with those of libtorch; packed models call them with their own numbers.
//!
//! Slices hold tensors in row-major order. A function checks the lengths of its slices once, when it is
//! called, and panics with both sizes where they do not agree. Work is dealt to rayon's threads in tasks
//! whose sums do not depend on the number of threads.
//!
//! [`PackedMatrix`] and [`rows`] are for decoding with a model that is not trained any more: they allocate
//! nothing, and compute on one thread where that is asked for.
//!
//! # Dimensions
//! | name | meaning |
//! |---|---|
//! | `batch` | sentences computed at a time |
//! | `rows` | rows of a matrix: tokens of all sentences |
//! | `query_len`, `key_len` | positions that attend, positions attended to |
//! | `d_input`, `d_output` | width of a row before and after a linear map |
//! | `d_model` | width of the residual stream |
//! | `n_heads` | attention heads |
//! | `d_k`, `d_v` | width of a head's queries and keys, of its values; `d_head` is either |
//! | `vocab_size` | entries of a vocabulary |
//! | `slot` | one of the positions that a cache holds |

// In the order in which they use each other.
mod types;

#[cfg(target_arch = "x86_64")]
mod amx;
mod buffer;
mod random;
mod simd;
mod sizes;
mod transpose;

mod products;

mod packed;

mod attention;

mod elementwise;

pub mod rows;

pub use attention::heads::{HeadRows, join_heads, score_scale};
pub use attention::mask::{LOWEST, Mask};
pub use attention::{Attended, HeadGradients, attention_backward, attention_forward};
pub use buffer::sized;
pub use elementwise::activation::{relu_dropout, relu_dropout_backward};
pub use elementwise::adam::adam;
pub use elementwise::dropout::{add_dropout, dropout, dropout_in_place};
pub use elementwise::embedding::{embedding, embedding_gradient};
pub use elementwise::loss::{RowLoss, cross_entropy, cross_entropy_backward, log_softmax};
pub use elementwise::norm::{NormGradients, Normed, layer_norm, layer_norm_backward};
pub use elementwise::sums::{sum_of_squares, sum_rows};
pub use packed::rows::quantized_rows;
pub use packed::{PackedMatrix, PackedPrecision, ProductBuffer, Threads};
pub use products::bf16::multiplies_bf16_fast;
pub use products::linear::{LinearShape, linear, linear_input_gradient, linear_weight_gradient};
pub use random::Keep;
pub use simd::check_simd;
pub use sizes::count;
pub use types::{
    Activation, AdamStep, AttentionParents, Heads, NormParents, ProductPrecision, WeightLayout,
};
