//! Operations on numbers and rows between the products of training.

pub mod activation;
pub mod adam;
pub mod dropout;
pub mod embedding;
pub mod loss;
pub mod norm;
pub mod sums;
