//! Matrix multiplication of operands rounded to bf16, with sums in single precision.
//!
//! | file | contents |
//! |---|---|
//! | here | the multiplication, by tiles if the processor has instructions for them |
//! | `panels` | the operands, rounded and laid out for tiles |
//! | `tiles` | the multiplication of such operands, in tasks |
//! | `avx512` | the tiles |

#[cfg(target_arch = "x86_64")]
mod avx512;
mod panels;
#[cfg(target_arch = "x86_64")]
mod tiles;

pub use self::panels::rounded;
use crate::products::matrix::Matrix;

/// Multiplies operands rounded to bf16, if this processor does so faster than in single precision. Inputs and sums
/// below the smallest normal number become zero.
///
/// # Panics
/// When the sizes do not agree.
pub fn product(x: Matrix<'_>, other: Matrix<'_>) -> Option<Vec<f32>> {
    #[cfg(target_arch = "x86_64")]
    let product = tiles::fast_dot().map(|dot| tiles::product(dot, x, other));
    #[cfg(not(target_arch = "x86_64"))]
    let product = None;
    product
}

/// Whether this processor multiplies bf16 faster than single precision.
pub fn multiplies_bf16_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    let is_fast = tiles::fast_dot().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    let is_fast = false;
    is_fast
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::matrix::tests::in_each_layout;
    use crate::products::{product, product_of_rounded};
    use crate::types::ProductPrecision::Bf16;

    type Product<'a> = &'a (dyn Fn(Matrix<'_>, Matrix<'_>) -> Vec<f32> + Sync);

    /// Tests the multiplication with AVX512-BF16, if this processor has it and `TRANSFORMER_SIMD` allows it, and
    /// without it.
    fn on_each(test: impl Fn(Product<'_>)) {
        test(&|x, other| product(x, other, Bf16));
        test(&product_of_rounded);
        #[cfg(target_arch = "x86_64")]
        {
            match avx512::Dot::new() {
                Some(dot) => test(&|x, other| tiles::product(dot, x, other)),
                None => println!("not run on AVX512-BF16: this processor has none"),
            }
        }
    }

    /// Small integers are exact in bf16, and so are their sums here in f32. Every view is surrounded by NaN, which
    /// would propagate to any result that reads it.
    #[test]
    fn products_of_numbers_that_need_no_rounding_are_exact() {
        on_each(|product| {
            for [rows, inner, columns] in [
                [1, 1, 1],
                [1, 40, 9],
                [11, 2, 33],
                [12, 3, 32],
                [13, 515, 31],
                [25, 64, 65],
                [80, 64, 96],
                [300, 131, 110],
            ] {
                in_each_layout([rows, inner, columns], |x, other, expected| {
                    assert_eq!(product(x, other), expected, "{rows}, {inner}, {columns}");
                });
            }
        });
    }

    /// Values from -1 to 1 that bf16 cannot represent.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let number = |at: usize| ((at + seed) * 7919 % 1013) as f32 / 506.0 - 1.0;
        (0..count).map(number).collect()
    }

    /// Each operand is off by at most 1/256 of itself, and the sum by its roundings.
    #[test]
    fn a_product_is_off_by_the_roundings_of_its_factors() {
        on_each(|product| {
            let [rows, inner, columns] = [29, 300, 50];
            let x = numbers(rows * inner, 0);
            let other = numbers(inner * columns, 311);
            let found = product(
                Matrix::new(&x, rows, inner, inner),
                Matrix::new(&other, inner, columns, columns),
            );
            let mut largest = 0.0_f64;
            for (at, found) in found.iter().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let term =
                    |k: usize| [x[row * inner + k], other[k * columns + column]].map(f64::from);
                let terms = (0..inner).map(|k| term(k).into_iter().product::<f64>());
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| {
                    (sum + term, size + term.abs())
                });
                largest = largest.max((f64::from(*found) - sum).abs() / size);
            }
            assert!((1e-5..2.05 / 256.0).contains(&largest), "{largest:e}");
        });
    }

    #[test]
    fn no_number_depends_on_threads_or_on_other_rows() {
        on_each(|product| {
            let [rows, inner, columns] = [200, 150, 170];
            let x = numbers(rows * inner, 0);
            let other = numbers(inner * columns, 311);
            let (x, other) = (
                Matrix::new(&x, rows, inner, inner),
                Matrix::new(&other, inner, columns, columns),
            );
            let on = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                pool.build().unwrap().install(|| product(x, other))
            };
            let all = on(1);
            assert_eq!(on(3), all);
            let few = product(x.rows(20..70), other);
            assert_eq!(few, all[20 * columns..70 * columns]);
        });
    }

    #[test]
    fn what_is_no_number_stays_none() {
        on_each(|product| {
            for [x, other, expected] in [
                [f32::INFINITY, 1.0, f32::INFINITY],
                [f32::MAX, -1.0, f32::NEG_INFINITY],
                [1.0, f32::NEG_INFINITY, f32::NEG_INFINITY],
                [f32::from_bits(0x7f80_0001), 1.0, f32::NAN],
                [f32::from_bits(0xffff_ffff), 1.0, f32::NAN],
                [f32::INFINITY, 0.0, f32::NAN],
            ] {
                let (x, other) = ([x], [other]);
                let found = product(Matrix::new(&x, 1, 1, 1), Matrix::new(&other, 1, 1, 1));
                let is_same = found[0] == expected || found[0].is_nan() && expected.is_nan();
                assert!(is_same, "{x:?} by {other:?}: {found:?}");
            }
        });
    }

    #[test]
    fn an_inner_size_of_zero_gives_zeros() {
        on_each(|product| {
            let found = product(Matrix::new(&[], 2, 0, 0), Matrix::new(&[], 0, 3, 3));
            assert_eq!(found, [0.0; 6]);
            let none = product(Matrix::new(&[], 0, 3, 3), Matrix::new(&[1.0; 6], 3, 2, 2));
            assert!(none.is_empty());
        });
    }

    #[test]
    #[should_panic(expected = "inner dimensions of the matrices")]
    fn sizes_that_do_not_agree_are_refused() {
        let x = Matrix::new(&[0.0; 6], 3, 2, 2);
        product(x, x, Bf16);
    }
}
