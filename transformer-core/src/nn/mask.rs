//! Which keys a query may not attend to (§3.2.3).
//!
//! **`true` means blocked**, in every mask of this crate and of [`ops`].

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

use transformer_kernels as ops;

use crate::special_tokens::SpecialTokens;

/// The positions of `tokens` that hold `pad_id`, which no query may attend to.
///
/// # Shapes
/// - tokens: `[batch, len]`
/// - output: `[batch, len]`, `true` = blocked
pub fn padding_positions<B: Backend>(tokens: Tensor<B, 2, Int>, pad_id: u32) -> Tensor<B, 2, Bool> {
    tokens.equal_elem(pad_id as i64)
}

/// The mask of the decoder's self-attention in a whole target (§3.2.3): no position attends to those after it or to
/// `<pad>`, unless that is `<bos>`, too, and begins the target.
///
/// # Shapes
/// - tokens: `[batch, len]`
/// - the mask: `[batch, 1, len, len]`
pub fn target_mask<B: Backend>(
    tokens: Tensor<B, 2, Int>,
    special_tokens: SpecialTokens,
) -> AttentionMask<B> {
    let [_, len] = tokens.dims();
    let tokens = with_start(tokens, special_tokens);
    AttentionMask::causal_padding(len, padding_positions(tokens, special_tokens.pad))
}

/// Sequences with another token in place of a first token that is `<bos>` and `<pad>`, so that no mask takes it for
/// padding.
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

/// An attention mask (§3.2.3): the keys that a query may not attend to, and, if there is one, a bias on the
/// scores of the others. It is broadcast over dimensions of size 1.
///
/// A query whose every key is blocked attends to nothing: its output is zero and its gradients are
/// finite.
///
/// Causality and padding are kept as such, and not as a tensor of the size of the scores. Kernels skip blocked
/// keys, wholly or in part. Where there is no kernel, the mask is expanded to a bias when it is first needed, once
/// for a mask and its clones: make one for all layers.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::AttentionMask;
///
/// // One query for each of three positions: the future is blocked.
/// let mask = AttentionMask::<NdArray>::causal(3, 3, &Default::default());
/// let blocked = mask.blocked().into_data();
/// assert_eq!(
///     blocked.iter::<bool>().collect::<Vec<_>>(),
///     [false, true, true, false, false, true, false, false, false],
/// );
/// ```
#[derive(Debug, Clone)]
pub struct AttentionMask<B: Backend> {
    mask: ops::Mask<B>,
}

impl<B: Backend> AttentionMask<B> {
    /// Blocks the keys at padded positions, for every query.
    ///
    /// # Shapes
    /// - padding: `[batch, key_len]`, `true` = blocked
    pub fn padding(padding: Tensor<B, 2, Bool>) -> Self {
        let mask = ops::Mask::padding(padding);
        Self { mask }
    }

    /// Blocks the keys after each query's own position.
    ///
    /// If there are more keys than queries, the queries are the last positions: query `i` is at position
    /// `key_len - query_len + i`.
    ///
    /// # Panics
    /// When there are more queries than keys.
    pub fn causal(query_len: usize, key_len: usize, device: &B::Device) -> Self {
        let first = first_of_last(query_len, key_len);
        let mask = ops::Mask::<B>::causal(first, query_len, key_len, device);
        Self { mask }
    }

    /// Blocks both the future and the padded positions.
    ///
    /// # Shapes
    /// - padding: `[batch, key_len]`, `true` = blocked
    ///
    /// # Panics
    /// When there are more queries than keys.
    pub fn causal_padding(query_len: usize, padding: Tensor<B, 2, Bool>) -> Self {
        let [_, key_len] = padding.dims();
        Self::causal_padding_from(first_of_last(query_len, key_len), query_len, padding)
    }

    /// [`causal_padding`](Self::causal_padding) for queries that begin at the position `first`.
    pub(crate) fn causal_padding_from(
        first: usize,
        query_len: usize,
        padding: Tensor<B, 2, Bool>,
    ) -> Self {
        let mask = ops::Mask::causal_padding(first, query_len, padding);
        Self { mask }
    }

    /// Any mask.
    ///
    /// # Shapes
    /// - blocked: `[batch or 1, n_heads or 1, query_len or 1, key_len]`, `true` = blocked
    pub fn from_blocked(blocked: Tensor<B, 4, Bool>) -> Self {
        let mask = ops::Mask::from_blocked(blocked);
        Self { mask }
    }

    /// A bias on the scores of all keys, none of which is blocked: [`with_bias`](Self::with_bias) of a mask
    /// that blocks nothing.
    ///
    /// # Shapes
    /// - bias: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    pub fn from_bias(bias: Tensor<B, 4>) -> Self {
        let mask = ops::Mask::from_bias(bias);
        Self { mask }
    }

    /// Adds a bias to the scores `Q Kᵀ / √d_k`, and to the bias of an earlier call: ALiBi's, or the relative
    /// biases of T5.
    ///
    /// The bias may be learned: it gets its gradient, and attention is then composed, not fused. Its values at
    /// blocked keys have no effect and no gradient. All others must be finite: a key is blocked by the mask, not by
    /// a bias of −∞.
    ///
    /// # Shapes
    /// - bias: `[batch or 1, n_heads or 1, query_len or 1, key_len]`; the mask then has in each dimension the
    ///   larger of both sizes
    ///
    /// # Panics
    /// When two sizes differ and neither is 1, when `key_len` differs, when the bias has more queries than a causal
    /// mask, or another type of numbers than the bias before; attention panics when it has another type than the
    /// scores.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_ndarray::NdArray;
    /// use transformer_core::{AttentionMask, Dropout, scaled_dot_product_attention};
    ///
    /// // A query and three keys whose scores are zero. The last key is the future; the bias of ln 3 gives
    /// // the first one three times the weight of the second.
    /// let device = Default::default();
    /// let query = Tensor::<NdArray, 4>::zeros([1, 1, 1, 8], &device);
    /// let key = Tensor::zeros([1, 1, 3, 8], &device);
    /// let future = Tensor::from_data([[[[false, false, true]]]], &device);
    /// let bias = Tensor::from_data([[[[3.0_f32.ln(), 0.0, 9.0]]]], &device);
    /// let mask = AttentionMask::from_blocked(future).with_bias(bias);
    /// let no_dropout = Dropout::new(0.0);
    /// let (_, weights) =
    ///     scaled_dot_product_attention(query, key.clone(), key, Some(&mask), &no_dropout);
    /// let weights: Vec<f32> = weights.into_data().iter().collect();
    /// assert!((weights[0] - 0.75).abs() < 1e-6 && (weights[1] - 0.25).abs() < 1e-6);
    /// assert_eq!(weights[2], 0.0);
    /// ```
    pub fn with_bias(self, bias: Tensor<B, 4>) -> Self {
        let mask = self.mask.with_bias(bias);
        Self { mask }
    }

    /// The blocked keys. A [bias](Self::with_bias) may make the mask larger than this.
    ///
    /// # Shapes
    /// - output: `[batch or 1, n_heads or 1, query_len or 1, key_len]`, `true` = blocked
    pub fn blocked(&self) -> Tensor<B, 4, Bool> {
        self.mask.blocked()
    }

    /// The mask as [`ops::attention`] accepts it, for an attention of your own.
    pub fn parts(&self) -> &ops::Mask<B> {
        &self.mask
    }
}

/// The position of the first query, when the queries are the last positions.
fn first_of_last(query_len: usize, key_len: usize) -> usize {
    assert!(
        query_len <= key_len,
        "{query_len} queries cannot be the last of {key_len} positions"
    );
    key_len - query_len
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    fn tokens<const ROWS: usize, const LEN: usize>(
        rows: [[i64; LEN]; ROWS],
    ) -> Tensor<NdArray, 2, Int> {
        Tensor::from_data(rows, &Default::default())
    }

    /// Each row of the mask as a word: `x` where it blocks.
    fn drawn(mask: &AttentionMask<NdArray>) -> Vec<String> {
        let [_, _, _, key_len] = mask.blocked().dims();
        let blocked: Vec<bool> = mask.blocked().into_data().iter().collect();
        blocked
            .chunks(key_len)
            .map(|row| row.iter().map(|&b| if b { 'x' } else { '.' }).collect())
            .collect()
    }

    #[test]
    fn padding_is_at_the_pad_tokens() {
        let padding = padding_positions(tokens([[5, 9, 9], [9, 1, 0]]), 9);
        let mask = AttentionMask::padding(padding);
        assert_eq!(mask.blocked().dims(), [2, 1, 1, 3]);
        assert_eq!(drawn(&mask), [".xx", "x.."]);
    }

    #[test]
    fn causal_queries_are_the_last_positions() {
        let causal = |query_len, key_len| {
            drawn(&AttentionMask::causal(
                query_len,
                key_len,
                &Default::default(),
            ))
        };
        assert_eq!(causal(3, 3), [".xx", "..x", "..."]);
        assert_eq!(causal(2, 5), ["....x", "....."]);
        assert_eq!(causal(1, 4), ["...."]);
    }

    #[test]
    fn causal_and_padding_masks_are_combined() {
        let padding = padding_positions(tokens([[5, 5, 0], [0, 5, 5]]), 0);
        let mask = AttentionMask::causal_padding(2, padding);
        assert_eq!(mask.blocked().dims(), [2, 1, 2, 3]);
        assert_eq!(drawn(&mask), ["..x", "..x", "x.x", "x.."]);
    }
}
