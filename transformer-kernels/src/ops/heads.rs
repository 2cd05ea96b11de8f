//! The heads of attention: where they are in rows, and in a cache.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::autodiff::{first, plain, same, wrapped};
use crate::kernels::Kernels;
use crate::sizes::reshaped;

/// Splits columns of rows into heads (§3.2.2).
///
/// # Shapes
/// - rows: `[batch, len, column + n_heads · d_head or more]`, all heads from a column on
/// - output: `[batch, n_heads, len, d_head]`
///
/// # Panics
/// When the rows have fewer columns.
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

/// Puts all heads side by side: `Concat(head_1, …, head_h)` of §3.2.2.
///
/// # Shapes
/// - heads: `[batch, n_heads, len, d_head]`
/// - output: `[batch, len, n_heads · d_head]`
pub fn join_heads<B: Backend>(heads: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, n_heads, len, d_head] = heads.dims();
    reshaped(heads.swap_dims(1, 2), [batch, len, n_heads * d_head])
}

/// Writes keys or values into slots of a cache, from a slot on: in place, where the kernel's cache has
/// no other holder.
///
/// Fused where no gradients are taken; on libtorch, whose own operation is as fast, composed.
///
/// # Shapes
/// - cache: `[batch, n_heads, capacity, d_head]`
/// - rows: `[batch, new_len, column + n_heads · d_head or more]`, all heads from a column on
/// - output: as the cache
///
/// # Panics
/// When the shapes do not agree, or the slots do not lie within the capacity.
pub fn write_heads<B: Backend>(
    cache: Tensor<B, 4>,
    slot: usize,
    rows: &Tensor<B, 3>,
    column: usize,
) -> Tensor<B, 4> {
    let ([batch, n_heads, capacity, d_head], [others, new_len, width]) =
        (cache.dims(), rows.dims());
    assert_eq!(batch, others, "sentences of the cache and of the rows");
    assert!(
        slot + new_len <= capacity,
        "{new_len} from slot {slot} on, of a capacity of {capacity}"
    );
    assert!(
        column + n_heads * d_head <= width,
        "{n_heads} heads of {d_head} from column {column} of {width}"
    );
    let kernel: Option<Write<B>> = first!(write_kernel::<B>(&cache, rows));
    let write = kernel.unwrap_or(composed_write);
    write(cache, slot, rows, column)
}

/// [`write_heads`] in one way.
type Write<B> = fn(Tensor<B, 4>, usize, &Tensor<B, 3>, usize) -> Tensor<B, 4>;

/// [`write_heads`] by Burn's operations.
fn composed_write<B: Backend>(
    cache: Tensor<B, 4>,
    slot: usize,
    rows: &Tensor<B, 3>,
    column: usize,
) -> Tensor<B, 4> {
    let [batch, n_heads, _, d_head] = cache.dims();
    let heads = split_heads(rows, column, n_heads, d_head);
    let [_, _, new_len, _] = heads.dims();
    let slots = [0..batch, 0..n_heads, slot..slot + new_len, 0..d_head];
    cache.slice_assign(slots, heads)
}

/// The kernel for these tensors.
fn write_kernel<B: Backend, I: Kernels>(
    cache: &Tensor<B, 4>,
    rows: &Tensor<B, 3>,
) -> Option<Write<B>> {
    I::WRITE_HEADS?;
    plain::<B, I, 4>(cache)?;
    plain::<B, I, 3>(rows)?;
    Some(fused_write::<B, I>)
}

/// By the kernel that [`write_kernel`] has found. Nothing else of this operation holds the cache.
fn fused_write<B: Backend, I: Kernels>(
    cache: Tensor<B, 4>,
    slot: usize,
    rows: &Tensor<B, 3>,
    column: usize,
) -> Tensor<B, 4> {
    const FOUND: &str = "of the backend whose kernel was found";
    let write = I::WRITE_HEADS.expect(FOUND);
    let rows = plain::<B, I, 3>(rows).expect(FOUND);
    let cache = same(cache.into_primitive().tensor()).expect(FOUND);
    wrapped(write(cache, slot, &rows, column))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{on_each, plain as numbers, values};

    on_each!(kernel_is_the_composition on slices);

    fn kernel_is_the_composition<I: Kernels>() {
        let cache = numbers::<I, 4>(1, [2, 3, 6, 4]);
        let rows = numbers::<I, 3>(2, [2, 2, 5 + 3 * 4 + 1]);
        // Also into a cache that has another holder.
        let kept = cache.clone();
        let before = values(cache.clone());
        let expected = values(composed_write(cache.clone(), 3, &rows, 5));
        let write = write_kernel::<I, I>(&cache, &rows).expect("a kernel");
        let written = write(cache, 3, &rows, 5);
        assert_eq!(values(written.clone()), expected);
        assert_eq!(values(kept), before);
        let again = write(written, 3, &rows, 5);
        assert_eq!(values(again), expected);
    }

    #[test]
    fn heads_are_split_and_joined() {
        let rows = numbers::<burn_ndarray::NdArray, 3>(1, [2, 5, 3 + 12]);
        let heads = split_heads(&rows, 3, 4, 3);
        assert_eq!(heads.dims(), [2, 4, 5, 3]);
        // Sentence 1, head 2, position 4: columns 3 + 2 · 3 on.
        assert_eq!(
            values(heads.clone().slice([1..2, 2..3, 4..5, 0..3])),
            values(rows.clone().slice([1..2, 4..5, 9..12]))
        );
        assert_eq!(values(join_heads(heads)), values(rows.slice_dim(2, 3..15)));
    }
}
