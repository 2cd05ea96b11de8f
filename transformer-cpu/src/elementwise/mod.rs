//! Elementwise and row-wise operations of training, between matrix multiplications.

pub mod activation;
pub mod adam;
pub mod dropout;
pub mod embedding;
pub mod loss;
pub mod norm;
pub mod sums;
pub mod turn;
