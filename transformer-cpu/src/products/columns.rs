//! A matrix that several threads write, each some of its columns.

use std::marker::PhantomData;

use crate::sizes::count;

/// Some columns of all rows of a matrix, to be written.
///
/// No other value has the same columns, so that values of one matrix may be written by several threads.
#[derive(Debug)]
pub struct Columns<'a, T = f32> {
    /// The first number of the first row. The matrix from there on is borrowed for `'a`; the rows begin `stride`
    /// numbers apart, and no other value has the first `width` numbers of any.
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
    /// When there are more numbers, or fewer.
    pub fn new(values: &'a mut [T], rows: usize, width: usize) -> Self {
        let size = count(&[rows, width]);
        assert_eq!(values.len(), size, "numbers of a matrix");
        Self {
            values: values.as_mut_ptr(),
            rows,
            width,
            stride: width,
            matrix: PhantomData,
        }
    }

    /// Parts of `width` columns each; the last one may have fewer.
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
    /// When there is no such row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        #[allow(unsafe_code, reason = "rows of a part of the columns are no slice")]
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

    /// Each thread adds the number of its part to all that it has.
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

    /// In a release build the product would wrap to zero, and a row be written where there is none.
    #[test]
    #[should_panic(expected = "are more numbers than memory can hold")]
    fn sizes_that_wrap_are_refused() {
        let many = 1 << (usize::BITS / 2);
        Columns::<f32>::new(&mut [], many, many);
    }

    #[test]
    #[should_panic(expected = "numbers of a matrix")]
    fn a_matrix_of_another_size_is_refused() {
        Columns::new(&mut [0.0; 5], 2, 3);
    }

    #[test]
    #[should_panic(expected = "row 2 of 2")]
    fn a_row_that_is_not_there_is_refused() {
        Columns::new(&mut [0.0; 6], 2, 3).row(2);
    }
}
