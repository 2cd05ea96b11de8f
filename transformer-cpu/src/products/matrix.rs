//! Matrix multiplication; the matrices may be views of parts of larger ones.

use std::mem::MaybeUninit;
use std::ops::Range;

use gemm::Parallelism;

use crate::sizes::count;

/// Number of multiply–adds from which a matrix multiplication uses several threads.
pub const LARGE: usize = 1 << 22;

/// Number of elements from which a matrix is read by several threads, however few its rows.
pub const LARGE_MATRIX: usize = 1 << 17;

/// A view of a matrix, not necessarily contiguous.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub(super) values: &'a [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `rows` rows of `columns` values, with row starts `stride` values apart.
    ///
    /// # Panics
    /// When the view extends beyond the values.
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

    /// A range of rows.
    ///
    /// # Panics
    /// When `rows` is out of range.
    pub fn rows(self, rows: Range<usize>) -> Self {
        assert!(
            rows.start <= rows.end && rows.end <= self.rows,
            "rows {rows:?} of {}",
            self.rows
        );
        let first = rows.start * self.row_stride;
        Self {
            values: self.values.get(first..).unwrap_or_default(),
            rows: rows.len(),
            ..self
        }
    }

    /// A row of a matrix whose rows are contiguous.
    ///
    /// # Panics
    /// When the rows are not contiguous, or `row` is out of range.
    pub fn row(self, row: usize) -> &'a [f32] {
        assert_eq!(self.column_stride, 1, "distance between columns");
        assert!(row < self.rows, "row {row} of {}", self.rows);
        if self.columns == 0 {
            return &[];
        }
        &self.values[row * self.row_stride..][..self.columns]
    }

    /// The same view of other values with the same length.
    pub(super) fn of<'b>(self, values: &'b [f32]) -> Matrix<'b> {
        assert_eq!(values.len(), self.values.len(), "length of a view");
        Matrix { values, ..self }
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

    /// `self · other` in row-major order, by the crate gemm, on all threads if `is_large`.
    ///
    /// # Panics
    /// When the sizes do not agree.
    pub fn product(self, other: Matrix<'_>, is_large: bool) -> Vec<f32> {
        let count = count(&[self.rows, other.columns]);
        let mut out = Vec::with_capacity(count);
        let spare = &mut out.spare_capacity_mut()[..count];
        let threads = match is_large {
            true => Parallelism::Rayon(0),
            false => Parallelism::None,
        };
        self.compute(other, 1.0, Destination::Initialise(spare), threads);
        #[allow(unsafe_code, reason = "gemm writes into uninitialized memory")]
        // SAFETY: the capacity is `count` at least, and `compute` has initialized the first `count` numbers.
        unsafe {
            out.set_len(count);
        }
        out
    }

    /// Writes `scale · self · other` to `out` in row-major order, on this thread.
    ///
    /// # Panics
    /// When the sizes do not agree.
    pub fn multiply(self, other: Matrix<'_>, scale: f32, out: &mut [f32]) {
        self.compute(other, scale, Destination::Overwrite(out), Parallelism::None);
    }

    /// Adds `scale · self · other` to `out` in row-major order, on this thread.
    ///
    /// # Panics
    /// When the sizes do not agree.
    pub fn add_product(self, other: Matrix<'_>, scale: f32, out: &mut [f32]) {
        self.compute(other, scale, Destination::Add(out), Parallelism::None);
    }

    fn compute(self, other: Matrix<'_>, scale: f32, out: Destination<'_>, threads: Parallelism) {
        assert_eq!(self.columns, other.rows, "inner dimensions of the matrices");
        let size = count(&[self.rows, other.columns]);
        let (adds, len, pointer): (bool, usize, *mut f32) = match out {
            Destination::Initialise(out) if self.columns == 0 => {
                assert_eq!(out.len(), size, "length of the result");
                out.fill(MaybeUninit::new(0.0));
                return;
            }
            Destination::Initialise(out) => (false, out.len(), out.as_mut_ptr().cast()),
            Destination::Overwrite(out) => (false, out.len(), out.as_mut_ptr()),
            Destination::Add(out) => (true, out.len(), out.as_mut_ptr()),
        };
        assert_eq!(len, size, "length of the result");
        self.check();
        other.check();
        #[allow(unsafe_code, reason = "gemm takes pointers")]
        // SAFETY: both views lie within their slices, as `check` has asserted, or have no numbers, and then gemm
        // reads none. The pointer is to `self.rows · other.columns` numbers, borrowed mutably, which gemm writes,
        // all of them, and reads only if `adds`.
        unsafe {
            gemm::gemm(
                self.rows,
                other.columns,
                self.columns,
                pointer,
                1,
                other.columns as isize,
                adds,
                self.values.as_ptr(),
                self.column_stride as isize,
                self.row_stride as isize,
                other.values.as_ptr(),
                other.column_stride as isize,
                other.row_stride as isize,
                if adds { 1.0 } else { 0.0 },
                scale,
                false,
                false,
                false,
                threads,
            );
        }
    }
}

/// The destination of a result.
enum Destination<'a> {
    /// Uninitialized memory: every value is written, and none is read.
    Initialise(&'a mut [MaybeUninit<f32>]),
    /// Existing values are overwritten.
    Overwrite(&'a mut [f32]),
    /// The result is added to existing values.
    Add(&'a mut [f32]),
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::products::product;
    use crate::types::ProductPrecision::F32;

    /// In a release build, the number of results would wrap to zero, and gemm would write past it.
    #[test]
    #[should_panic(expected = "has more elements than memory can hold")]
    fn counts_that_wrap_are_refused() {
        let many = 1 << (usize::BITS / 2);
        Matrix::new(&[], many, 0, 0).product(Matrix::new(&[], 0, many, many), false);
    }

    /// Sizes and strides for which gemm has separate paths: few inner columns, one row or column, whole and
    /// partial vectors, transposed views, and enough work for several threads. Every view and result is surrounded
    /// by NaN, which would propagate to any result that reads it, and must not be overwritten.
    #[test]
    fn nothing_but_the_views_is_read_and_nothing_but_the_result_is_written() {
        for [rows, inner, columns] in [
            [1, 40, 9],
            [16, 16, 16],
            [65, 1, 1],
            [65, 2, 33],
            [66, 3, 1],
            [70, 17, 16],
            [97, 64, 31],
            [129, 5, 300],
            [300, 130, 110],
            // More inner rows than a block has.
            [70, 1030, 65],
        ] {
            let sizes = [rows, inner, columns];
            in_each_layout(sizes, |x, w, expected| {
                assert_eq!(product(x, w, F32), expected, "{sizes:?}");
                for is_large in [false, true] {
                    assert_eq!(x.product(w, is_large), expected, "{sizes:?}");
                }
                // Not at a vector boundary.
                let mut out = vec![f32::NAN; rows * columns + 10];
                let (before, after) = (3, 3 + rows * columns);
                x.multiply(w, 1.0, &mut out[before..after]);
                assert_eq!(&out[before..after], expected, "{sizes:?}");
                x.add_product(w, 1.0, &mut out[before..after]);
                let doubled: Vec<f32> = expected.iter().map(|y| y + y).collect();
                assert_eq!(out[before..after], doubled, "{sizes:?}");
                let mut others = out[..before].iter().chain(&out[after..]);
                assert!(others.all(|y| y.is_nan()), "{sizes:?}");
            });
        }
    }

    /// Calls `check` with two operands and their product, with each operand in row-major and in column-major
    /// order.
    pub fn in_each_layout(sizes: [usize; 3], check: impl Fn(Matrix<'_>, Matrix<'_>, &[f32])) {
        let [rows, inner, columns] = sizes;
        let x = Framed::new([rows, inner], 1);
        let w = Framed::new([inner, columns], 2);
        let (x_turned, w_turned) = (x.transposed(), w.transposed());
        let expected = product_of(&x, &w, sizes);
        for x in [x.view(), x_turned.view().transposed()] {
            for w in [w.view(), w_turned.view().transposed()] {
                check(x, w, &expected);
            }
        }
    }

    /// A matrix of small integers, whose products and sums are exact, inside a larger one of NaN.
    pub struct Framed {
        values: Vec<f32>,
        sizes: [usize; 2],
    }

    impl Framed {
        /// Rows and columns of NaN around the matrix.
        const FRAME: usize = 2;

        pub fn new(sizes: [usize; 2], seed: usize) -> Self {
            Self::of(sizes, |row, column| {
                ((row * 37 + column * 5 + seed * 11) % 17) as f32 - 8.0
            })
        }

        fn of(sizes: [usize; 2], number: impl Fn(usize, usize) -> f32) -> Self {
            let [rows, columns] = sizes;
            let stride = columns + 2 * Self::FRAME;
            let mut values = vec![f32::NAN; (rows + 2 * Self::FRAME) * stride];
            for row in 0..rows {
                for column in 0..columns {
                    values[(row + Self::FRAME) * stride + Self::FRAME + column] =
                        number(row, column);
                }
            }
            Self { values, sizes }
        }

        fn number(&self, row: usize, column: usize) -> f32 {
            let stride = self.sizes[1] + 2 * Self::FRAME;
            self.values[(row + Self::FRAME) * stride + Self::FRAME + column]
        }

        pub fn view(&self) -> Matrix<'_> {
            let [rows, columns] = self.sizes;
            let stride = columns + 2 * Self::FRAME;
            let first = Self::FRAME * stride + Self::FRAME;
            Matrix::new(&self.values[first..], rows, columns, stride)
        }

        pub fn transposed(&self) -> Self {
            let [rows, columns] = self.sizes;
            Self::of([columns, rows], |row, column| self.number(column, row))
        }
    }

    fn product_of(x: &Framed, w: &Framed, [rows, inner, columns]: [usize; 3]) -> Vec<f32> {
        let mut out = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            for column in 0..columns {
                let terms = (0..inner).map(|k| x.number(row, k) * w.number(k, column));
                out.push(terms.sum());
            }
        }
        out
    }

    #[test]
    #[should_panic(expected = "a matrix [3, 2] outside its 5 values")]
    fn a_view_beyond_its_values_is_refused() {
        Matrix::new(&[0.0; 5], 3, 2, 2);
    }

    #[test]
    #[should_panic(expected = "length of the result")]
    fn a_result_of_another_size_is_refused() {
        let x = Matrix::new(&[0.0; 6], 3, 2, 2);
        x.multiply(x.transposed(), 1.0, &mut [0.0; 8]);
    }

    #[test]
    #[should_panic(expected = "row 1 of 1")]
    fn a_row_of_another_view_is_refused() {
        Matrix::new(&[0.0; 4], 2, 2, 2).rows(0..1).row(1);
    }

    #[test]
    fn rows_are_transposed_and_products_added() {
        // Rows 1 and 2 of [[1, 2], [3, 4], [5, 6]], with a gap after each row.
        let x = [1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 5.0, 6.0];
        let x = Matrix::new(&x, 3, 2, 3).rows(1..3);
        assert_eq!(x.row(1), [5.0, 6.0]);
        let mut transposed = [0.0; 4];
        x.write_transposed(2.0, 2, &mut transposed);
        assert_eq!(transposed, [6.0, 10.0, 8.0, 12.0]);
        // [[3, 4], [5, 6]] · [[6, 10], [8, 12]] = [[50, 78], [78, 122]]
        let mut sums = [1.0, 2.0, 3.0, 4.0];
        x.add_product(Matrix::new(&transposed, 2, 2, 2), 0.5, &mut sums);
        assert_eq!(sums, [26.0, 41.0, 42.0, 65.0]);
    }

    #[test]
    fn an_inner_size_of_zero_gives_zeros() {
        for rows in [2, 65] {
            let (x, w) = (Matrix::new(&[], rows, 0, 0), Matrix::new(&[], 0, 3, 3));
            for product in [product(x, w, F32), x.product(w, false)] {
                assert_eq!(product, vec![0.0; 3 * rows]);
            }
        }
        let mut out = [1.0; 6];
        Matrix::new(&[], 2, 0, 0).multiply(Matrix::new(&[], 0, 3, 3), 1.0, &mut out);
        assert_eq!(out, [0.0; 6]);
        out = [1.0; 6];
        Matrix::new(&[], 2, 0, 0).add_product(Matrix::new(&[], 0, 3, 3), 1.0, &mut out);
        assert_eq!(out, [1.0; 6]);
    }
}
