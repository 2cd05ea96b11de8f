//! Views of the rows of heads.

use crate::buffer::{by_tasks, rows_of_task, task_of_rows};
use crate::products::matrix::Matrix;
use crate::sizes::count;

/// The scale `1 / √d_k` of the queries, which makes the variance of the scores independent of `d_k` (§3.2.1).
pub fn score_scale(d_k: usize) -> f64 {
    1.0 / (d_k as f64).sqrt()
}

/// A strided view of the rows of all heads: `[batch, n_heads, len, width]`.
#[derive(Debug, Clone, Copy)]
pub struct HeadRows<'a> {
    values: &'a [f32],
    batch: usize,
    n_heads: usize,
    len: usize,
    width: usize,
    /// Strides of sentences, heads and rows.
    strides: [usize; 3],
}

impl<'a> HeadRows<'a> {
    /// Heads side by side in rows `[batch, len, row_width]`, starting at `column`.
    ///
    /// # Panics
    /// When the number of values does not match the shape, or the heads exceed the rows.
    pub fn in_rows(
        values: &'a [f32],
        [batch, len, row_width]: [usize; 3],
        column: usize,
        [n_heads, width]: [usize; 2],
    ) -> Self {
        let shape = [batch, len, row_width];
        assert_eq!(values.len(), count(&shape), "length of rows {shape:?}");
        let end = column.checked_add(count(&[n_heads, width]));
        assert!(
            end.is_some_and(|end| end <= row_width),
            "{n_heads} heads of {width} from column {column} of {row_width}"
        );
        Self {
            values: values.get(column..).unwrap_or_default(),
            batch,
            n_heads,
            len,
            width,
            strides: [len * row_width, width, row_width],
        }
    }

    /// Heads stored one after another: `[batch, n_heads, len, width]`.
    #[cfg(test)]
    pub(super) fn split(values: &'a [f32], shape: [usize; 4]) -> Self {
        let [batch, n_heads, len, width] = shape;
        Self {
            values,
            batch,
            n_heads,
            len,
            width,
            strides: [n_heads * len * width, len * width, width],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// `[batch, n_heads, len, width]`
    pub(super) fn shape(&self) -> [usize; 4] {
        [self.batch, self.n_heads, self.len, self.width]
    }

    /// The rows of a head, with heads numbered across sentences.
    pub(super) fn head(&self, index: usize) -> Matrix<'a> {
        Matrix::new(self.from(index), self.len, self.width, self.strides[2])
    }

    /// The values from the first row of a head; none if there are no rows.
    fn from(&self, index: usize) -> &'a [f32] {
        let (sentence, head) = (index / self.n_heads, index % self.n_heads);
        let first = sentence * self.strides[0] + head * self.strides[1];
        self.values.get(first..).unwrap_or_default()
    }
}

/// Rearranges heads stored one after another, `[batch, n_heads, len, d_head]` per part, into rows
/// `[batch, len, n_heads · Σ d_head]`: all heads of the first part, then of the second.
///
/// # Panics
/// When the number of values does not match the shape.
pub fn join_heads(
    parts: &[&[f32]],
    widths: &[usize],
    [batch, n_heads, len]: [usize; 3],
) -> Vec<f32> {
    assert_eq!(parts.len(), widths.len(), "number of parts and of widths");
    for (part, &width) in parts.iter().zip(widths) {
        let shape = [batch, n_heads, len, width];
        assert_eq!(part.len(), count(&shape), "length of heads {shape:?}");
    }
    let row_width = n_heads * widths.iter().sum::<usize>();
    let task_rows = rows_of_task(row_width);
    by_tasks(
        count(&[batch, len, row_width]),
        task_of_rows(row_width),
        |task, rows| {
            for (row, values) in rows.chunks_exact_mut(row_width).enumerate() {
                let row = task * task_rows + row;
                let (sentence, position) = (row / len, row % len);
                let mut at = 0;
                for (part, &width) in parts.iter().zip(widths) {
                    for head in 0..n_heads {
                        let from = ((sentence * n_heads + head) * len + position) * width;
                        values[at..at + width].copy_from_slice(&part[from..from + width]);
                        at += width;
                    }
                }
            }
        },
    )
}
