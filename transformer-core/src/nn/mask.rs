//! Padding masks and causal masks of a batch of tokens (§3.2.3). The type is [`Mask`].
//!
//! `true` means blocked in every mask.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

use transformer_kernels::Mask;

use crate::special_tokens::SpecialTokens;

/// The positions of `tokens` that hold `pad_id`, which no query may attend to.
///
/// # Shapes
/// - tokens: `[batch, len]`
/// - output: `[batch, len]`, `true` = blocked
pub fn padding_positions<B: Backend>(tokens: Tensor<B, 2, Int>, pad_id: u32) -> Tensor<B, 2, Bool> {
    tokens.equal_elem(pad_id as i64)
}

/// The mask of the decoder's self-attention over a whole target (§3.2.3): no position attends to later positions or to
/// [`<pad>`](SpecialTokens::padding), except where `<pad>` is also `<bos>` and begins the target.
///
/// # Shapes
/// - tokens: `[batch, len]`
/// - output: `[batch or 1, 1, len, len]`
pub fn target_mask<B: Backend>(
    tokens: Tensor<B, 2, Int>,
    special_tokens: SpecialTokens,
) -> Mask<B> {
    let [_, len] = tokens.dims();
    let tokens = with_start(tokens, special_tokens);
    causal_mask(tokens, len, special_tokens)
}

/// The mask of the last `query_len` positions of tokens: it hides later positions and padding.
///
/// # Shapes
/// - tokens: `[batch, len]`
/// - output: `[batch or 1, 1, query_len, len]`
pub(crate) fn causal_mask<B: Backend>(
    tokens: Tensor<B, 2, Int>,
    query_len: usize,
    special_tokens: SpecialTokens,
) -> Mask<B> {
    match special_tokens.padding() {
        Some(pad) => Mask::causal_padding(query_len, padding_positions(tokens, pad)),
        None => Mask::causal(query_len, tokens.dims()[1], &tokens.device()),
    }
}

/// Replaces the first token if `<bos>` is also `<pad>`, so that it is not masked as padding.
///
/// # Shapes
/// - tokens and output: `[batch, len]`
pub(crate) fn with_start<B: Backend>(
    tokens: Tensor<B, 2, Int>,
    SpecialTokens { pad, bos, .. }: SpecialTokens,
) -> Tensor<B, 2, Int> {
    if bos != pad {
        return tokens;
    }
    let [batch, len] = tokens.dims();
    let other_than_pad = u32::from(pad == 0);
    let start = Tensor::full([batch, 1], other_than_pad, &tokens.device());
    match len {
        1 => start,
        len => Tensor::cat(vec![start, tokens.slice_dim(1, 1..len)], 1),
    }
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
