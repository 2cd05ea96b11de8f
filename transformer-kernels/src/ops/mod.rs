//! The operations: a function for each, with its composition of Burn's operations, and the use of its kernels.

pub mod activation;
pub mod adam;
pub mod attention;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod gather_rows;
pub mod heads;
pub mod layer_norm;
pub mod linear;
pub mod mask;
pub mod operands;
pub mod sums;
