//! The layers of the Transformer. They do not depend on models, files or search.
//!
//! ```
//! use burn::tensor::Tensor;
//! use burn_ndarray::NdArray;
//! use transformer_core::nn::{Context, LayerConfig, StackConfig};
//!
//! # fn main() -> Result<(), transformer_core::nn::ConfigError> {
//! // An encoder of two layers: d_model 32, 4 heads, d_ff 64.
//! let device = Default::default();
//! let layer = LayerConfig::new(32, 4, 64)?;
//! let encoder = StackConfig::new(layer, 2).init::<NdArray>(&device);
//!
//! let x = Tensor::zeros([2, 5, 32], &device);
//! let output = encoder.forward(x, &Context::default());
//! assert_eq!(output.hidden.dims(), [2, 5, 32]);
//! # Ok(())
//! # }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `stack`, `layer`, `block` | encoder and decoder stacks; their layer; the trait that custom layers implement (§3.1) |
//! | `sublayer`, `norm`, `dropout` | residual connection, normalization and dropout (§3.1, §5.4) |
//! | `attention`, `heads` | equation 1 and the configuration; the heads, after the input projections (§3.2) |
//! | `self_attention`, `multi_head_attention` | multi-head attention with its input projections in one matrix or in two (§3.2.2) |
//! | `mask` | padding and causal masks (§3.2.3) |
//! | `recurrence` | an alternative to the decoder's self-attention |
//! | `feed_forward` | §3.3 |
//! | `embedding`, `generator`, `linear` | §3.4 |
//! | `positions`, `position_bias`, `rotary`, `relative_positions` | positions added to embeddings, as a bias on scores, as rotations of queries and keys, and as vectors per distance (§3.5) |
//! | `cache` | the decoder's state between two tokens |
//! | `init`, `parameters`, `error` | initial weights; names and shapes of parameters; invalid configurations |

pub(crate) mod attention;
pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod dropout;
pub(crate) mod embedding;
pub(crate) mod error;
pub(crate) mod feed_forward;
pub(crate) mod generator;
pub(crate) mod heads;
pub(crate) mod init;
pub(crate) mod layer;
pub(crate) mod linear;
pub(crate) mod mask;
pub(crate) mod multi_head_attention;
pub(crate) mod norm;
pub(crate) mod parameters;
pub(crate) mod position_bias;
pub(crate) mod positions;
pub(crate) mod recurrence;
pub(crate) mod relative_positions;
pub(crate) mod rotary;
pub(crate) mod self_attention;
pub(crate) mod stack;
pub(crate) mod sublayer;

pub use attention::{AttentionConfig, AttentionOutput, scaled_dot_product_attention};
pub use block::{Block, BlockOutput, BlockState, Context};
pub use cache::{Cache, KeyValue, LayerState};
pub use dropout::Dropout;
pub use embedding::{EmbeddingConfig, TokenEmbedding};
pub use error::ConfigError;
pub use feed_forward::{FeedForward, FeedForwardConfig};
pub use generator::{Generator, GeneratorConfig};
pub use heads::AttentionHeads;
pub use init::WeightInit;
pub use layer::{Layer, LayerConfig, Mixer};
pub use mask::{padding_positions, target_mask};
pub use multi_head_attention::{AttentionInput, MultiHeadAttention};
pub use norm::{Norm, NormConfig, NormKind};
pub use position_bias::{BiasKind, Buckets, PositionBias, PositionBiasConfig};
pub use positions::{PositionalEncoding, PositionalEncodingConfig, Positions, sinusoidal_encoding};
pub use recurrence::{Recurrence, RecurrenceConfig};
pub use relative_positions::RelativePositions;
pub use rotary::Rotary;
pub use self_attention::SelfAttention;
pub use stack::{Memory, Stack, StackConfig, StackOutput};
pub use sublayer::{NormPlacement, Sublayer, SublayerConfig};
pub use transformer_kernels::{Activation, AttentionWeights, Mask, ProductPrecision};
