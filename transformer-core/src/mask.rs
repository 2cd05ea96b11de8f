//! Which keys a query may not attend to (§3.2.3).

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};
pub use transformer_kernels::Mask;

/// The positions of `tokens` that hold `pad_id`, which no query may attend to.
///
/// # Shapes
/// - tokens: `[batch, len]`
/// - output: `[batch, len]`, `true` = blocked
pub fn padding_positions<B: Backend>(tokens: Tensor<B, 2, Int>, pad_id: u32) -> Tensor<B, 2, Bool> {
    tokens.equal_elem(pad_id as i64)
}

/// [`Mask::causal_padding`] for several targets of each source, as in a beam, whose tokens share the slots of a
/// cache: a query attends to the tokens of its own target only, up to its own. `paths` has the slots of each
/// target's tokens, those of a source together; the last `query_len` tokens of a target are its queries.
///
/// # Shapes
/// - padding: `[sources, slots]`, `true` = blocked
/// - the mask: `[sources, 1, targets of each · query_len, slots]`
pub(crate) fn causal_padding_along<B: Backend>(
    paths: &[Vec<usize>],
    query_len: usize,
    padding: Tensor<B, 2, Bool>,
) -> Mask<B> {
    let [sources, slots] = padding.dims();
    let queries = paths.len() * query_len;
    let mut blocked = vec![true; queries * slots];
    let attended = paths.iter().flat_map(|path| {
        let first = path.len() - query_len;
        (first..path.len()).map(move |own| &path[..=own])
    });
    for (blocked, attended) in blocked.chunks_mut(slots).zip(attended) {
        attended.iter().for_each(|&slot| blocked[slot] = false);
    }
    let shape = [sources, 1, queries / sources, slots];
    let future = TensorData::new(blocked, shape);
    let future = Tensor::<B, 4, Bool>::from_data(future, &padding.device());
    let padding: Tensor<B, 4, Bool> = padding.unsqueeze_dims(&[1, 1]);
    Mask::from_blocked(future.bool_or(padding.expand(shape)))
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;

    #[test]
    fn padding_is_at_the_pad_tokens() {
        let tokens =
            Tensor::<NdArray, 2, Int>::from_data([[5, 9, 9], [9, 1, 0]], &Default::default());
        let mask = Mask::padding(padding_positions(tokens, 9));
        assert_eq!(mask.blocked().dims(), [2, 1, 1, 3]);
        let blocked: Vec<bool> = mask.blocked().into_data().iter().collect();
        assert_eq!(blocked, [false, true, true, true, false, false]);
    }
}
