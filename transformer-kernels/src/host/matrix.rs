//! Products of matrices, which may be views of parts of larger ones.

use std::mem::MaybeUninit;

use gemm::Parallelism;

use super::few_rows::{self, FEW, Rows};
use crate::sizes::count;

/// Multiplications from which on a product is computed on several threads.
const LARGE: usize = 1 << 22;

/// Numbers of a matrix from which on it is read by several threads, for however few rows.
pub const LARGE_MATRIX: usize = 1 << 17;

/// A view of a matrix, not necessarily contiguous.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `rows` rows of `columns` numbers, each row `stride` numbers after the one before.
    ///
    /// # Panics
    /// When the view reaches beyond the values.
    pub fn new(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        let matrix = Self {
            values,
            rows,
            columns,
            row_stride: stride,
            column_stride: 1,
        };
        matrix.check();
        matrix
    }

    /// The transposed view.
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    fn check(&self) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        let last = |count: usize, stride: usize| (count - 1).checked_mul(stride);
        let last = last(self.rows, self.row_stride)
            .zip(last(self.columns, self.column_stride))
            .and_then(|(row, column)| row.checked_add(column));
        assert!(
            last.is_some_and(|last| last < self.values.len()),
            "a matrix [{}, {}] outside its {} values",
            self.rows,
            self.columns,
            self.values.len()
        );
    }

    /// The rows, where each is contiguous.
    fn contiguous_rows(self) -> Option<Rows<'a>> {
        (self.column_stride == 1)
            .then(|| Rows::new(self.values, self.rows, self.columns, self.row_stride))
    }

    /// `self · other`, row after row, on all threads where it is large.
    ///
    /// # Panics
    /// When the sizes do not agree.
    pub fn product(self, other: Matrix<'_>) -> Vec<f32> {
        assert_eq!(self.columns, other.rows, "inner sizes of a product");
        self.few_rows_product(other)
            .unwrap_or_else(|| self.gemm_product(other))
    }

    fn few_rows_product(self, other: Matrix<'_>) -> Option<Vec<f32>> {
        if self.rows > FEW || self.columns == 0 {
            return None;
        }
        let x = self.contiguous_rows()?;
        let parallel = other.rows * other.columns >= LARGE_MATRIX;
        match other.contiguous_rows() {
            Some(rows) => Some(few_rows::product(x, rows, parallel)),
            None => {
                let rows = other.transposed().contiguous_rows()?;
                Some(few_rows::transposed_product(x, rows, parallel))
            }
        }
    }

    fn gemm_product(self, other: Matrix<'_>) -> Vec<f32> {
        let count = count(&[self.rows, other.columns]);
        let mut out = Vec::with_capacity(count);
        let threads = if count.saturating_mul(self.columns) < LARGE {
            Parallelism::None
        } else {
            Parallelism::Rayon(0)
        };
        self.write(other, 1.0, &mut out.spare_capacity_mut()[..count], threads);
        #[allow(unsafe_code, reason = "gemm writes into uninitialised memory")]
        // SAFETY: each of the `count` results has been written.
        unsafe {
            out.set_len(count);
        }
        out
    }

    /// Writes `scale · self · other` into `out`, row after row, on this thread.
    ///
    /// # Panics
    /// When the sizes do not agree.
    pub fn multiply(self, other: Matrix<'_>, scale: f32, out: &mut [f32]) {
        #[allow(unsafe_code, reason = "to share `write` with `product`")]
        // SAFETY: `write` initialises every element and reads none.
        let out = unsafe { &mut *(out as *mut [f32] as *mut [MaybeUninit<f32>]) };
        self.write(other, scale, out, Parallelism::None);
    }

    /// Writes every element of `out`.
    fn write(
        self,
        other: Matrix<'_>,
        scale: f32,
        out: &mut [MaybeUninit<f32>],
        threads: Parallelism,
    ) {
        assert_eq!(self.columns, other.rows, "inner sizes of a product");
        let size = count(&[self.rows, other.columns]);
        assert_eq!(out.len(), size, "size of a product");
        if self.columns == 0 {
            out.fill(MaybeUninit::new(0.0));
            return;
        }
        self.check();
        other.check();
        #[allow(unsafe_code, reason = "gemm takes pointers")]
        // SAFETY: both views lie within their slices, and `out` has an element for each result.
        unsafe {
            gemm::gemm(
                self.rows,
                other.columns,
                self.columns,
                out.as_mut_ptr().cast(),
                1,
                other.columns as isize,
                false,
                self.values.as_ptr(),
                self.column_stride as isize,
                self.row_stride as isize,
                other.values.as_ptr(),
                other.column_stride as isize,
                other.row_stride as isize,
                0.0,
                scale,
                false,
                false,
                false,
                threads,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a release build, the number of results would wrap to zero, and gemm write past it.
    #[test]
    #[should_panic(expected = "are more numbers than memory can hold")]
    fn counts_that_wrap_are_refused() {
        let many = 1 << (usize::BITS / 2);
        Matrix::new(&[], many, 0, 0).product(Matrix::new(&[], 0, many, many));
    }

    #[test]
    fn an_inner_size_of_zero_gives_zeros() {
        for rows in [2, FEW + 1] {
            let product = Matrix::new(&[], rows, 0, 0).product(Matrix::new(&[], 0, 3, 3));
            assert_eq!(product, vec![0.0; 3 * rows]);
        }
        let mut out = [1.0; 6];
        Matrix::new(&[], 2, 0, 0).multiply(Matrix::new(&[], 0, 3, 3), 1.0, &mut out);
        assert_eq!(out, [0.0; 6]);
    }
}
