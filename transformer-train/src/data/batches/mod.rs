//! From examples to the batches of an update.

pub mod ahead;
pub mod sampler;
pub mod source;
pub mod update;
pub mod updates;
