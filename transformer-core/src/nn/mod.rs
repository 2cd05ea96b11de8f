//! The layers, and what they share. They know no model, no file and no search.
//!
//! | file | has |
//! |---|---|
//! | `stack`, `layer`, `block` | encoder and decoder; their layer; what a layer of one's own implements (§3.1) |
//! | `sublayer`, `norm`, `dropout` | the connection around a sub-layer, and the norms (§3.1, §5.4) |
//! | `attention`, `heads` | equation 1, the configuration; the heads after their projections (§3.2) |
//! | `self_attention`, `multi_head_attention` | the projections, in one matrix or in two (§3.2.2) |
//! | `mask` | the masks of a batch (§3.2.3) |
//! | `recurrence` | what may stand in the place of the decoder's self-attention |
//! | `feed_forward` | §3.3 |
//! | `embedding`, `generator`, `linear` | §3.4 |
//! | `positions`, `position_bias`, `rotary` | positions: added, as a bias on scores, as turns of queries and keys (§3.5) |
//! | `cache` | what a decoder remembers between two tokens |
//! | `init`, `parameters`, `error` | weights that are drawn; names and shapes of parameters; what can be wrong |

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
pub use rotary::Rotary;
pub use self_attention::SelfAttention;
pub use stack::{Memory, Stack, StackConfig, StackOutput};
pub use sublayer::{NormPlacement, Sublayer, SublayerConfig};
pub use transformer_kernels::{Activation, AttentionWeights, Mask, ProductPrecision};
