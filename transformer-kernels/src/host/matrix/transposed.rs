//! Transposed matrices: copies of them, and products with them.

use std::cell::Cell;
use std::ops::Range;

use gemm::Parallelism;
use rayon::prelude::*;

use super::{Destination, Matrix};
use crate::host::sized;
use crate::simd::vectorised;
use crate::sizes::count;
use crate::transpose::{BLOCK, Transposition};

/// Rows that a task copies: four cache lines of each column, which lie side by side.
const TASK_ROWS: usize = 4 * BLOCK;

/// Inner rows that are copied and multiplied at a time, at most; gemm does not multiply more at a time, either.
const DEPTH: usize = 512;

thread_local! {
    /// The rows that are multiplied.
    static ROWS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

impl Matrix<'_> {
    /// Some of the columns.
    ///
    /// # Panics
    /// When there are fewer columns.
    fn columns(self, columns: Range<usize>) -> Self {
        self.transposed().rows(columns).transposed()
    }

    /// Writes `scale · self`, transposed: column after column.
    ///
    /// # Panics
    /// When the rows are not contiguous, or `out` has another length.
    pub fn write_transposed(self, scale: f32, out: &mut [f32]) {
        let size = count(&[self.rows, self.columns]);
        assert_eq!(out.len(), size, "size of a transposed matrix");
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
                let lines = out[column * self.rows..].chunks_exact_mut(self.rows);
                for (line, mut numbers) in lines.zip(block) {
                    numbers.iter_mut().for_each(|x| *x *= scale);
                    *line[first..].first_chunk_mut().expect("a whole block") = numbers;
                }
            }
        });
        // The parts of rows and of columns that fill no whole block.
        for row in 0..self.rows {
            let first = match row < whole_rows {
                true => whole_columns,
                false => 0,
            };
            for (column, x) in self.row(row).iter().enumerate().skip(first) {
                out[column * self.rows + row] = scale * x;
            }
        }
    }

    /// `self · other`, on all threads, for an `other` whose columns are contiguous and whose rows are not: some rows
    /// at a time are copied, to be contiguous. gemm would collect them number by number, on one thread up to 1024
    /// columns.
    ///
    /// # Panics
    /// When the inner sizes do not agree, or are zero, or the columns are not contiguous.
    pub(super) fn product_by_copies(self, other: Matrix<'_>) -> Vec<f32> {
        assert_eq!(self.columns, other.rows, "inner sizes of a product");
        let depth = self.columns.div_ceil(self.columns.div_ceil(DEPTH));
        // Taken, not borrowed: while this thread waits for others, it may begin another product.
        let mut buffer = ROWS.take();
        let mut out = Vec::new();
        for first in (0..self.columns).step_by(depth) {
            let inner = first..self.columns.min(first + depth);
            let copied = sized(&mut buffer, count(&[inner.len(), other.columns]));
            copy_rows(other.rows(inner.clone()), copied);
            let rows = Matrix::new(copied, inner.len(), other.columns, other.columns);
            let x = self.columns(inner);
            match first {
                0 => out = x.gemm_product(rows, Parallelism::Rayon(0)),
                _ => x.compute(rows, 1.0, Destination::Add(&mut out), Parallelism::Rayon(0)),
            }
        }
        ROWS.set(buffer);
        out
    }
}

/// Rows or columns in whole blocks.
fn whole_blocks(len: usize) -> usize {
    len / BLOCK * BLOCK
}

/// Writes the rows of a matrix whose columns are contiguous one after another, on all threads.
fn copy_rows(matrix: Matrix<'_>, out: &mut [f32]) {
    let tasks = out.par_chunks_mut(TASK_ROWS * matrix.columns).enumerate();
    tasks.for_each(|(task, out)| {
        let first = task * TASK_ROWS;
        let rows = matrix.rows(first..matrix.rows.min(first + TASK_ROWS));
        rows.transposed().write_transposed(1.0, out);
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::Framed;

    /// Whole blocks, parts of blocks beside and below them, and parts alone.
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
            let mut out = vec![f32::NAN; sizes[0] * sizes[1]];
            matrix.view().write_transposed(2.0, &mut out);
            let expected = matrix.transposed();
            for row in 0..sizes[1] {
                let doubled: Vec<f32> = expected.view().row(row).iter().map(|x| 2.0 * x).collect();
                assert_eq!(out[row * sizes[0]..][..sizes[0]], doubled, "{sizes:?}");
            }
        }
    }
}
