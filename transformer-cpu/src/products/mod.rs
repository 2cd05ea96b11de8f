//! Products of matrices.

pub mod bf16;
pub mod columns;
pub mod few_rows;
pub mod linear;
pub mod matrix;
#[cfg(target_arch = "x86_64")]
mod panels;
mod transposed;
