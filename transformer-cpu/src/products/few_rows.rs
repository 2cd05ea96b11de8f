//! Products of few rows with a large matrix, which is read once and not copied.
//!
//! A product of many rows copies at least one of the matrices, so that its inner loop reads it in order. For few
//! rows, as in decoding, packing costs more than it saves.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::matrix::Matrix;
use crate::simd::arch;

/// Rows up to which the products here are mostly faster than gemm's.
pub const FEW: usize = 64;

/// `x W`: `[rows, inner]` times `[inner, columns]`, the rows of both contiguous, on all threads where `parallel`.
pub fn product(x: Matrix<'_>, w: Matrix<'_>, parallel: bool) -> Vec<f32> {
    by_columns(x.rows, w.columns, parallel, |first, columns| {
        // Not a power of two, so that rows do not compete for the same few cache lines.
        let stride = (columns.div_ceil(2 * MOST_LANES) | 1) * 2 * MOST_LANES;
        let mut out = vec![0.0; x.rows * stride];
        arch().dispatch(Product {
            x,
            w: w.columns(first..first + columns),
            out: &mut out,
            stride,
            near: &mut vec![0.0; 8 * x.rows],
        });
        (out, stride)
    })
}

/// `x Wᵀ`: `[rows, inner]` times the transposed of `[columns, inner]`, the rows of both contiguous, on all threads where
/// `parallel`.
pub fn transposed_product(x: Matrix<'_>, w: Matrix<'_>, parallel: bool) -> Vec<f32> {
    by_columns(x.rows, w.rows, parallel, |first, columns| {
        let mut out = vec![0.0; x.rows * columns];
        arch().dispatch(TransposedProduct {
            x,
            w: w.rows(first..first + columns),
            out: &mut out,
        });
        (out, columns)
    })
}

/// Has each thread compute some columns, and puts them side by side. `compute` accepts the first column
/// and the number of columns, and returns their values and the stride of its rows.
fn by_columns(
    rows: usize,
    columns: usize,
    parallel: bool,
    compute: impl Fn(usize, usize) -> (Vec<f32>, usize) + Sync,
) -> Vec<f32> {
    let threads = if parallel {
        rayon::current_num_threads()
    } else {
        1
    };
    let width = columns.div_ceil(threads).max(1);
    let width = width.next_multiple_of(2 * MOST_LANES);
    let task = |task: usize| {
        let first = task * width;
        compute(first, width.min(columns - first))
    };
    let tasks = columns.div_ceil(width);
    let parts: Vec<_> = if parallel {
        (0..tasks).into_par_iter().map(task).collect()
    } else {
        (0..tasks).map(task).collect()
    };
    let mut out = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for (which, (part, stride)) in parts.iter().enumerate() {
            let width = width.min(columns - which * width);
            out.extend_from_slice(&part[row * stride..][..width]);
        }
    }
    out
}

/// Numbers in the widest vector.
const MOST_LANES: usize = 16;

/// Adds `x W` to `out`, whose rows are padded to whole vectors.
struct Product<'a> {
    x: Matrix<'a>,
    w: Matrix<'a>,
    out: &'a mut [f32],
    stride: usize,
    /// A buffer for eight columns of x.
    near: &'a mut [f32],
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let inner = self.w.rows;
        let mut first = 0;
        // As many rows of W as the registers hold beside the sums.
        if S::REGISTER_COUNT >= 32 {
            while first + 8 <= inner {
                self.add::<S, 8>(simd, first);
                first += 8;
            }
        }
        while first + 4 <= inner {
            self.add::<S, 4>(simd, first);
            first += 4;
        }
        while first < inner {
            self.add::<S, 1>(simd, first);
            first += 1;
        }
    }
}

impl Product<'_> {
    /// Adds the products of `K` columns of x and rows of W.
    #[inline(always)]
    fn add<S: Simd, const K: usize>(&mut self, simd: S, first: usize) {
        let lanes = S::F32_LANES;
        let mut w_rows: [(&[S::f32s], &[f32]); K] = [(&[], &[]); K];
        for (i, row) in w_rows.iter_mut().enumerate() {
            *row = S::as_simd_f32s(self.w.row(first + i));
        }
        // Copied side by side: in x they are far apart.
        let (x, _) = self.near[..self.x.rows * K].as_chunks_mut::<K>();
        for (row, x) in x.iter_mut().enumerate() {
            x.copy_from_slice(&self.x.row(row)[first..first + K]);
        }
        for (pair, column) in (0..self.w.columns).step_by(2 * lanes).enumerate() {
            let mut left = [simd.splat_f32s(0.0); K];
            let mut right = left;
            for i in 0..K {
                left[i] = vector(simd, w_rows[i], 2 * pair);
                right[i] = vector(simd, w_rows[i], 2 * pair + 1);
            }
            for (row, x) in x.iter().enumerate() {
                let out = &mut self.out[row * self.stride + column..][..2 * lanes];
                let (out, _) = S::as_mut_simd_f32s(out);
                let (mut left_sum, mut right_sum) = (out[0], out[1]);
                for i in 0..K {
                    let x = simd.splat_f32s(x[i]);
                    left_sum = simd.mul_add_e_f32s(x, left[i], left_sum);
                    right_sum = simd.mul_add_e_f32s(x, right[i], right_sum);
                }
                (out[0], out[1]) = (left_sum, right_sum);
            }
        }
    }
}

/// One of the vectors of a row, with zeros after the last number.
#[inline(always)]
fn vector<S: Simd>(simd: S, (vectors, rest): (&[S::f32s], &[f32]), which: usize) -> S::f32s {
    match vectors.get(which) {
        Some(&vector) => vector,
        None if which == vectors.len() => simd.partial_load_f32s(rest),
        None => simd.splat_f32s(0.0),
    }
}

/// Columns of `x Wᵀ`, rows of W, computed side by side.
const SIDE_BY_SIDE: usize = 4;

/// Writes `x Wᵀ` into `out`, row after row.
struct TransposedProduct<'a> {
    x: Matrix<'a>,
    w: Matrix<'a>,
    out: &'a mut [f32],
}

impl WithSimd for TransposedProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // These rows of W stay in the processor's cache for all rows of x.
        for column in (0..self.w.rows).step_by(SIDE_BY_SIDE) {
            let mut row = 0;
            if S::REGISTER_COUNT >= 32 {
                while row + 4 <= self.x.rows {
                    self.write::<S, 4>(simd, row, column);
                    row += 4;
                }
            }
            while row + 2 <= self.x.rows {
                self.write::<S, 2>(simd, row, column);
                row += 2;
            }
            if row < self.x.rows {
                self.write::<S, 1>(simd, row, column);
            }
        }
    }
}

impl TransposedProduct<'_> {
    /// Writes `R` rows of some columns. Columns beyond the last repeat the last.
    #[inline(always)]
    fn write<S: Simd, const R: usize>(&mut self, simd: S, first_row: usize, first_column: usize) {
        let columns = self.w.rows;
        let mut x: [(&[S::f32s], &[f32]); R] = [(&[], &[]); R];
        let mut w: [(&[S::f32s], &[f32]); SIDE_BY_SIDE] = [(&[], &[]); SIDE_BY_SIDE];
        for (i, x) in x.iter_mut().enumerate() {
            *x = S::as_simd_f32s(self.x.row(first_row + i));
        }
        for (i, w) in w.iter_mut().enumerate() {
            *w = S::as_simd_f32s(self.w.row((first_column + i).min(columns - 1)));
        }
        let mut sums = [[simd.splat_f32s(0.0); SIDE_BY_SIDE]; R];
        for at in 0..w[0].0.len() {
            for r in 0..R {
                for c in 0..SIDE_BY_SIDE {
                    sums[r][c] = simd.mul_add_e_f32s(x[r].0[at], w[c].0[at], sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..SIDE_BY_SIDE {
                let x = simd.partial_load_f32s(x[r].1);
                let sum = simd.mul_add_e_f32s(x, simd.partial_load_f32s(w[c].1), sums[r][c]);
                let column = (first_column + c).min(columns - 1);
                self.out[(first_row + r) * columns + column] = simd.reduce_sum_f32s(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers, whose products and sums are exact.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let number = |at: usize| ((at * 37 + seed * 11) % 17) as f32 - 8.0;
        (0..count).map(number).collect()
    }

    #[test]
    fn products_of_all_sizes_are_exact() {
        let sizes = [0, 1, 3, 4, 5, 8, 15, 16, 17, 31, 33, 64, 65, 200];
        for rows in [0, 1, 2, 3, 4, 5, 7, 16, 63, FEW] {
            for (inner, columns) in sizes.iter().flat_map(|&k| sizes.map(|n| (k, n))) {
                // Rows with gaps between them.
                let (x_stride, w_stride) = (inner + 3, columns + 2);
                let x = numbers(rows * x_stride, 1);
                let w = numbers(inner * w_stride, 2);
                let mut w_transposed = vec![f32::NAN; columns * x_stride];
                let mut expected = vec![0.0; rows * columns];
                for column in 0..columns {
                    for k in 0..inner {
                        w_transposed[column * x_stride + k] = w[k * w_stride + column];
                        for row in 0..rows {
                            expected[row * columns + column] +=
                                x[row * x_stride + k] * w[k * w_stride + column];
                        }
                    }
                }
                let x = Matrix::new(&x, rows, inner, x_stride);
                let w = Matrix::new(&w, inner, columns, w_stride);
                let w_transposed = Matrix::new(&w_transposed, columns, inner, x_stride);
                for parallel in [false, true] {
                    let size = format!("{rows} x {inner} x {columns}, parallel: {parallel}");
                    assert_eq!(product(x, w, parallel), expected, "{size}");
                    let transposed = transposed_product(x, w_transposed, parallel);
                    assert_eq!(transposed, expected, "{size}, transposed");
                }
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_the_others_or_on_threads() {
        let (rows, inner, columns) = (FEW, 515, 301);
        let fraction = |values: Vec<f32>| -> Vec<f32> { values.iter().map(|x| x / 7.0).collect() };
        let x = fraction(numbers(rows * inner, 3));
        let w = fraction(numbers(inner * columns, 4));
        let all = Matrix::new(&x, rows, inner, inner);
        let plain = Matrix::new(&w, inner, columns, columns);
        let turned = Matrix::new(&w, columns, inner, inner);
        let together = [
            product(all, plain, true),
            transposed_product(all, turned, true),
        ];
        for row in 0..rows {
            let alone = Matrix::new(&x[row * inner..], 1, inner, inner);
            let range = row * columns..(row + 1) * columns;
            assert_eq!(product(alone, plain, false), together[0][range.clone()]);
            assert_eq!(transposed_product(alone, turned, false), together[1][range]);
        }
    }

    #[test]
    fn narrower_vectors_compute_the_same() {
        assert_eq!(by(pulp::Scalar), by_all_lanes());
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            assert_eq!(by(simd), by_all_lanes());
        } else {
            println!("not run on AVX2: this processor has none");
        }
    }

    /// Without instructions for it, a fused multiply-add is a library call for each number.
    #[test]
    fn multiply_adds_without_instructions_are_not_fused() {
        let x = 1.0 + f32::EPSILON;
        let (xs, ws) = ([1.0, x], [-(x * x), x]);
        let x = Matrix::new(&xs, 1, 2, 2);
        let mut out = vec![0.0; 2];
        pulp::Scalar.vectorize(Product {
            x,
            w: Matrix::new(&ws, 2, 1, 1),
            out: &mut out,
            stride: 2,
            near: &mut [0.0; 8],
        });
        let mut transposed = vec![0.0];
        pulp::Scalar.vectorize(TransposedProduct {
            x,
            w: Matrix::new(&ws, 1, 2, 2),
            out: &mut transposed,
        });
        // If fused, the rounding error of x² would remain.
        assert_eq!([out[0], transposed[0]], [0.0, 0.0]);
    }

    const SIZES: [usize; 3] = [7, 45, 71];

    fn inputs() -> [Vec<f32>; 2] {
        let [rows, inner, columns] = SIZES;
        [numbers(rows * inner, 5), numbers(inner * columns, 6)]
    }

    fn by_all_lanes() -> [Vec<f32>; 2] {
        let [rows, inner, columns] = SIZES;
        let [x, w] = &inputs();
        let x = Matrix::new(x, rows, inner, inner);
        [
            product(x, Matrix::new(w, inner, columns, columns), false),
            transposed_product(x, Matrix::new(w, columns, inner, inner), false),
        ]
    }

    fn by<S: Simd>(simd: S) -> [Vec<f32>; 2] {
        let [rows, inner, columns] = SIZES;
        let stride = 96;
        let [x, w] = &inputs();
        let x = Matrix::new(x, rows, inner, inner);
        let mut out = vec![0.0; rows * stride];
        simd.vectorize(Product {
            x,
            w: Matrix::new(w, inner, columns, columns),
            out: &mut out,
            stride,
            near: &mut vec![0.0; 8 * rows],
        });
        let mut transposed = vec![0.0; rows * columns];
        simd.vectorize(TransposedProduct {
            x,
            w: Matrix::new(w, columns, inner, inner),
            out: &mut transposed,
        });
        let rows = out.chunks_exact(stride).flat_map(|row| &row[..columns]);
        [rows.copied().collect(), transposed]
    }
}
