//! The operations: one function each, with its reference implementation and the call of its kernel.

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
pub mod turn;
