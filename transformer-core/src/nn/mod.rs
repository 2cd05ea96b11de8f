//! The layers, one file per section of the paper, and what they share. They know no model, no file and no search.

pub mod attention;
pub mod block;
pub mod cache;
pub mod dropout;
pub mod embedding;
pub mod error;
pub mod feed_forward;
pub mod generator;
pub mod heads;
pub mod init;
pub mod layer;
pub mod linear;
pub mod mask;
pub mod multi_head_attention;
pub mod norm;
pub mod parameters;
pub mod position_bias;
pub mod positions;
pub mod recurrence;
pub mod rotary;
pub mod self_attention;
pub mod stack;
pub mod sublayer;
