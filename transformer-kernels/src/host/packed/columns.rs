//! A matrix that several threads write, each some of its columns.

use std::marker::PhantomData;

/// Some columns of all rows of a matrix, to be written.
///
/// No other value has the same columns, so that values of one matrix may be written by several threads.
#[derive(Debug)]
pub struct Columns<'a> {
    /// The first number of the first row.
    values: *mut f32,
    rows: usize,
    width: usize,
    stride: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

#[allow(unsafe_code, reason = "a pointer is not `Send` by itself")]
// SAFETY: it is as a `&mut [f32]` to each of its rows, which are its own.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    /// All columns of a matrix `[rows, width]`.
    ///
    /// # Panics
    /// When there are not so many numbers.
    pub fn new(values: &'a mut [f32], rows: usize, width: usize) -> Self {
        assert_eq!(values.len(), rows * width, "numbers of a matrix");
        Self {
            values: values.as_mut_ptr(),
            rows,
            width,
            stride: width,
            matrix: PhantomData,
        }
    }

    /// Parts of `width` columns each; the last one has what remains.
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
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        #[allow(unsafe_code, reason = "rows of a part of the columns are no slice")]
        // SAFETY: the row lies in the matrix, `rows · stride` long, that is borrowed for `'a`; its numbers
        // in these columns belong to this value only, which is borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(self.values.add(row * self.stride), self.width)
        }
    }
}
