//! Splitting rows into attention heads, and joining them.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::sizes::reshaped;

/// Splits columns of rows into heads (§3.2.2).
///
/// # Shapes
/// - rows: `[batch, len, at least column + n_heads · d_head]`, with all heads starting at `column`
/// - output: `[batch, n_heads, len, d_head]`
///
/// # Panics
/// When the rows are too narrow.
pub fn split_heads<B: Backend>(
    rows: &Tensor<B, 3>,
    column: usize,
    n_heads: usize,
    d_head: usize,
) -> Tensor<B, 4> {
    let [batch, len, _] = rows.dims();
    let columns = column..column + n_heads * d_head;
    let columns = rows.clone().slice_dim(2, columns);
    reshaped(columns, [batch, len, n_heads, d_head]).swap_dims(1, 2)
}

/// Joins all heads side by side: `Concat(head_1, …, head_h)` (§3.2.2).
///
/// # Shapes
/// - heads: `[batch, n_heads, len, d_head]`
/// - output: `[batch, len, n_heads · d_head]`
pub fn join_heads<B: Backend>(heads: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, n_heads, len, d_head] = heads.dims();
    reshaped(heads.swap_dims(1, 2), [batch, len, n_heads * d_head])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{plain as numbers, values};

    #[test]
    fn heads_are_split_and_joined() {
        let rows = numbers::<burn_ndarray::NdArray, 3>(1, [2, 5, 3 + 12]);
        let heads = split_heads(&rows, 3, 4, 3);
        assert_eq!(heads.dims(), [2, 4, 5, 3]);
        // Sentence 1, head 2, position 4: columns starting at 3 + 2 · 3.
        assert_eq!(
            values(heads.clone().slice([1..2, 2..3, 4..5, 0..3])),
            values(rows.clone().slice([1..2, 4..5, 9..12]))
        );
        assert_eq!(values(join_heads(heads)), values(rows.slice_dim(2, 3..15)));
    }
}
