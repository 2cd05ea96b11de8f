//! Our own model directories.

pub mod config;
pub mod quantized;
pub mod weights;
