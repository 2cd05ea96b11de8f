//! A matrix written by several threads, each writing some of its columns.

use std::marker::PhantomData;

use crate::sizes::count;

/// Some columns of all rows of a matrix, to be written.
///
/// No other value has the same columns, so several threads may write values of one matrix.
#[derive(Debug)]
pub struct Columns<'a, T = f32> {
    /// The first value of the first row. The matrix from there on is borrowed for `'a`; the rows begin `stride`
    /// values apart, and no other `Columns` has the first `width` values of any.
    values: *mut T,
    rows: usize,
    width: usize,
    stride: usize,
    matrix: PhantomData<&'a mut [T]>,
}

#[allow(unsafe_code, reason = "a pointer is not `Send` by itself")]
// SAFETY: it stands for a `&mut [T]` to each of its rows, and those are `Send` if numbers are.
unsafe impl<T: Send> Send for Columns<'_, T> {}

impl<'a, T> Columns<'a, T> {
    /// All columns of a matrix `[rows, width]`.
    ///
    /// # Panics
    /// When the number of values does not match the size.
    pub fn new(values: &'a mut [T], rows: usize, width: usize) -> Self {
        let size = count(&[rows, width]);
        assert_eq!(values.len(), size, "length of a matrix");
        Self {
            values: values.as_mut_ptr(),
            rows,
            width,
            stride: width,
            matrix: PhantomData,
        }
    }

    /// Splits into parts of `width` columns; the last may have fewer.
    ///
    /// # Panics
    /// When the width is zero.
    pub fn split(self, width: usize) -> impl Iterator<Item = Self> {
        (0..self.width).step_by(width).map(move |first| Self {
            values: self.values.wrapping_add(first),
            width: width.min(self.width - first),
            ..self
        })
    }

    /// The number of rows.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    #[inline(always)]
    pub fn width(&self) -> usize {
        self.width
    }

    /// A row of these columns.
    ///
    /// # Panics
    /// When `row` is out of range.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        #[allow(unsafe_code, reason = "rows of some columns are not one slice")]
        // SAFETY: there are `rows · stride` numbers, less the columns before these, so that the row lies within them
        // and the product does not overflow. No other value has these columns, and this one is borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(self.values.add(row * self.stride), self.width)
        }
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    /// Each thread adds the number of its part to all its values.
    #[test]
    fn parts_have_every_number_once() {
        for [rows, width, part] in [[1, 1, 1], [5, 70, 32], [3, 64, 32], [7, 9, 100], [4, 0, 3]] {
            let mut values = vec![0.0f32; rows * width];
            let parts: Vec<_> = Columns::new(&mut values, rows, width).split(part).collect();
            assert_eq!(parts.len(), width.div_ceil(part));
            parts
                .into_par_iter()
                .enumerate()
                .for_each(|(which, mut columns)| {
                    assert_eq!(columns.rows(), rows);
                    for row in 0..rows {
                        let row = columns.row(row);
                        row.iter_mut().for_each(|x| *x += (which + 1) as f32);
                    }
                });
            for (at, x) in values.into_iter().enumerate() {
                assert_eq!(x, (at % width / part + 1) as f32, "{at}, {rows} x {width}");
            }
        }
    }

    /// In a release build, the size would wrap to zero, and a row would be written out of bounds.
    #[test]
    #[should_panic(expected = "has more elements than memory can hold")]
    fn sizes_that_wrap_are_refused() {
        let many = 1 << (usize::BITS / 2);
        Columns::<f32>::new(&mut [], many, many);
    }

    #[test]
    #[should_panic(expected = "length of a matrix")]
    fn a_matrix_of_another_size_is_refused() {
        Columns::new(&mut [0.0; 5], 2, 3);
    }

    #[test]
    #[should_panic(expected = "row 2 of 2")]
    fn a_row_that_is_not_there_is_refused() {
        Columns::new(&mut [0.0; 6], 2, 3).row(2);
    }
}
