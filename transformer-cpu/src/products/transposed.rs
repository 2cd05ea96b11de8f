//! Transposed copies of matrices.

#[cfg(target_arch = "x86_64")]
use std::ops::Range;

use super::matrix::Matrix;
use crate::simd::vectorised;
use crate::sizes::count;
use crate::transpose::{BLOCK, Transposition};

impl Matrix<'_> {
    /// A range of columns.
    ///
    /// # Panics
    /// When `columns` is out of range.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn columns(self, columns: Range<usize>) -> Self {
        self.transposed().rows(columns).transposed()
    }

    /// Writes `scale · self`, transposed: column by column, with starts `stride` values apart. The values between
    /// columns are unchanged.
    ///
    /// # Panics
    /// When the rows are not contiguous, a column is longer than `stride`, or the length of `out` does not match.
    pub fn write_transposed(self, scale: f32, stride: usize, out: &mut [f32]) {
        let size = count(&[stride, self.columns]);
        assert_eq!(out.len(), size, "length of a transposed matrix");
        assert!(self.rows <= stride, "{} rows, {stride} apart", self.rows);
        let (whole_rows, whole_columns) = (whole_blocks(self.rows), whole_blocks(self.columns));
        let transposition = Transposition::new();
        vectorised!(for first in (0..whole_rows).step_by(BLOCK) {
            let rows: [&[f32]; BLOCK] = std::array::from_fn(|row| self.row(first + row));
            for column in (0..whole_columns).step_by(BLOCK) {
                let mut block = [[0.0; BLOCK]; BLOCK];
                for (line, row) in block.iter_mut().zip(rows) {
                    *line = *row[column..].first_chunk().expect("a whole block");
                }
                transposition.apply(&mut block);
                let lines = out[column * stride..].chunks_exact_mut(stride);
                for (line, mut numbers) in lines.zip(block) {
                    numbers.iter_mut().for_each(|x| *x *= scale);
                    *line[first..].first_chunk_mut().expect("a whole block") = numbers;
                }
            }
        });
        // The remainders of rows and columns that do not fill a block.
        for row in 0..self.rows {
            let first = match row < whole_rows {
                true => whole_columns,
                false => 0,
            };
            for (column, x) in self.row(row).iter().enumerate().skip(first) {
                out[column * stride + row] = scale * x;
            }
        }
    }
}

/// The length that whole blocks cover.
fn whole_blocks(len: usize) -> usize {
    len / BLOCK * BLOCK
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::Framed;

    /// Whole blocks, partial blocks beside and below them, and partial blocks alone.
    #[test]
    fn every_number_of_a_transposed_matrix_is_at_its_place() {
        for sizes in [
            [32, 48],
            [35, 50],
            [16, 3],
            [3, 16],
            [15, 15],
            [0, 3],
            [3, 0],
        ] {
            let matrix = Framed::new(sizes, 1);
            let expected = matrix.transposed();
            for gap in [0, 3] {
                let stride = sizes[0] + gap;
                let mut out = vec![f32::NAN; stride * sizes[1]];
                matrix.view().write_transposed(2.0, stride, &mut out);
                for row in 0..sizes[1] {
                    let (column, gap) = out[row * stride..][..stride].split_at(sizes[0]);
                    let doubled = expected.view().row(row).iter().map(|x| 2.0 * x);
                    assert_eq!(column, doubled.collect::<Vec<f32>>(), "{sizes:?}");
                    assert!(gap.iter().all(|x| x.is_nan()), "{sizes:?}");
                }
            }
        }
    }
}
