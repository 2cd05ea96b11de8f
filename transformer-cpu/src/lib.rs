//! Kernels of a Transformer on slices, for CPUs: independent of tensors and of Burn's backends.
//!
//! ```
//! use transformer_cpu::{LinearShape, ProductPrecision, WeightLayout, linear, log_softmax};
//!
//! // Logits of two tokens over a vocabulary of three: `[rows, d_input]` to `[rows, d_output]`.
//! let shape = LinearShape {
//!     rows: 2,
//!     d_input: 2,
//!     d_output: 3,
//!     layout: WeightLayout::InputByOutput,
//!     precision: ProductPrecision::F32,
//! };
//! let weight = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
//! let logits = linear(&[1.0, 2.0, 0.0, 1.0], &weight, None, shape);
//! assert_eq!(logits, [15.0, 18.0, 21.0, 6.0, 7.0, 8.0]);
//!
//! let log_probs = log_softmax(&logits, 3);
//! let sum: f32 = log_probs[..3].iter().map(|x| x.exp()).sum();
//! assert!((sum - 1.0).abs() < 1e-6);
//! ```
//!
//! `transformer-kernels` calls them for tensors of flex and ndarray; for libtorch, it uses the attention over long
//! sequences and the optimizer step. Packed models call them on their own memory.
//!
//! Slices hold tensors in row-major order. Each function checks the lengths of its slices when it is called, and
//! panics with both sizes if they do not agree. Work is distributed over rayon's threads in tasks, and sums do not
//! depend on the number of threads.
//!
//! [`PackedMatrix`] and [`rows`] are for decoding with a trained model: they do not allocate, and run on one
//! thread on request.
//!
//! # Dimensions
//! | name | meaning |
//! |---|---|
//! | `batch` | sentences computed at a time |
//! | `rows` | rows of a matrix: tokens of all sentences |
//! | `query_len`, `key_len` | positions that attend, positions attended to |
//! | `d_input`, `d_output` | width of a row before and after a linear layer |
//! | `d_model` | width of the residual stream |
//! | `n_heads` | attention heads |
//! | `d_k`, `d_v` | width of a head's queries and keys, and of its values; `d_head` is either |
//! | `vocab_size` | number of entries of a vocabulary |
//! | `slot` | one position of a cache |

// Ordered so that each uses only those before it.
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
pub use elementwise::turn::turn_heads;
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
