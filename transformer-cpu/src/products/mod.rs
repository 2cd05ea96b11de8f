//! Matrix multiplication.
//!
//! | file | multiplies |
//! |---|---|
//! | `panels` | large matrices, with AVX-512 |
//! | `matrix` | all others, by the crate gemm |
//! | `bf16` | operands rounded to bf16 |

pub mod bf16;
pub mod columns;
pub mod linear;
pub mod matrix;
#[cfg(target_arch = "x86_64")]
mod panels;
mod transposed;

use self::matrix::{LARGE, Matrix};
use crate::sizes::count;
use crate::types::ProductPrecision;

/// `x · other` in this precision, in row-major order, on all threads if it is large.
///
/// # Panics
/// When the sizes do not agree.
pub fn product(x: Matrix<'_>, other: Matrix<'_>, precision: ProductPrecision) -> Vec<f32> {
    assert_eq!(x.columns, other.rows, "inner dimensions of the matrices");
    match precision {
        ProductPrecision::F32 => product_in_f32(x, other),
        ProductPrecision::Bf16 => {
            bf16::product(x, other).unwrap_or_else(|| product_of_rounded(x, other))
        }
    }
}

fn product_in_f32(x: Matrix<'_>, other: Matrix<'_>) -> Vec<f32> {
    let size = count(&[x.rows, other.columns]);
    let is_large = size.saturating_mul(x.columns) >= LARGE;
    #[cfg(target_arch = "x86_64")]
    if is_large && let Some(product) = panels::product(x, other) {
        return product;
    }
    x.product(other, is_large)
}

/// The single-precision product of operands rounded to bf16.
fn product_of_rounded(x: Matrix<'_>, other: Matrix<'_>) -> Vec<f32> {
    let [x_values, other_values] = [x, other].map(|factor| bf16::rounded(factor.values));
    product_in_f32(x.of(&x_values), other.of(&other_values))
}
