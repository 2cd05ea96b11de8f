//! Which keys a query may not attend to, and a bias on the scores of the others.

use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, DType, Tensor};
use transformer_cpu::LOWEST;

use crate::autodiff::{operand, same};
use crate::kernels::{Kernels, MaskTensors};

/// An attention mask (§3.2.3): the keys that a query may not attend to, and optionally a bias on the scores of the
/// others. **`true` means blocked.** Dimensions of size 1 are broadcast.
///
/// A query with only blocked keys attends to nothing: its weights and its output are zero, and its gradients are
/// finite.
///
/// Causality and padding are stored as such, not as a tensor of the size of the scores, and kernels skip all or
/// most of the blocked keys. Without a kernel, the mask is expanded to a bias on first use, once for a mask and
/// its clones, so use one mask for all layers. For scores of another type than the first, it is expanded on each
/// use.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_kernels::Mask;
///
/// // One query per position, of three: the future is blocked.
/// let mask = Mask::<NdArray>::causal(3, 3, &Default::default());
/// let blocked = mask.blocked().into_data();
/// assert_eq!(
///     blocked.iter::<bool>().collect::<Vec<_>>(),
///     [false, true, true, false, false, true, false, false, false],
/// );
/// ```
#[derive(Debug, Clone)]
pub struct Mask<B: Backend> {
    /// The position of the first query, if the keys after each query are blocked.
    causal: Option<usize>,
    /// `[batch or 1, key_len]`
    padding: Option<Tensor<B, 2, Bool>>,
    /// Blocked keys without structure.
    any: Option<Tensor<B, 4, Bool>>,
    /// As given, including its values at blocked keys.
    bias: Option<Tensor<B, 4>>,
    /// The combined size of blocked keys and bias: `[batch or 1, n_heads or 1, query_len or 1, key_len]`.
    dims: [usize; 4],
    device: B::Device,
    /// The mask as a bias of the first requested type.
    expanded: Arc<OnceLock<Expanded<B>>>,
}

/// A mask as a bias.
#[derive(Debug, Clone)]
pub(crate) struct Expanded<B: Backend> {
    /// The requested type.
    dtype: DType,
    /// The bias; [`lowest`] at blocked keys.
    pub bias: Tensor<B, 4>,
    /// Queries with only blocked keys, if there can be any. Each of the first three dimensions is that of `bias`,
    /// or 1 and broadcast to it; the last is 1.
    pub blocked_rows: Option<Tensor<B, 4, Bool>>,
}

impl<B: Backend> Mask<B> {
    /// Blocks nothing.
    fn none(dims: [usize; 4], device: B::Device) -> Self {
        Self {
            causal: None,
            padding: None,
            any: None,
            bias: None,
            dims,
            device,
            expanded: Arc::default(),
        }
    }

    /// Blocks the keys after each query's own position.
    ///
    /// If there are more keys than queries, the queries are at the last positions: query `i` is at position
    /// `key_len - query_len + i`.
    ///
    /// # Panics
    /// When there are more queries than keys.
    pub fn causal(query_len: usize, key_len: usize, device: &B::Device) -> Self {
        Self::causal_from(
            first_of_last(query_len, key_len),
            query_len,
            key_len,
            device,
        )
    }

    /// [`causal`](Self::causal), with the first query at key position `first`.
    pub fn causal_from(first: usize, query_len: usize, key_len: usize, device: &B::Device) -> Self {
        Self {
            causal: Some(first),
            ..Self::none([1, 1, query_len, key_len], device.clone())
        }
    }

    /// Blocks the keys at padded positions, for every query.
    ///
    /// # Shapes
    /// - padding: `[batch or 1, key_len]`, `true` = blocked
    pub fn padding(padding: Tensor<B, 2, Bool>) -> Self {
        let ([batch, key_len], device) = (padding.dims(), padding.device());
        Self {
            padding: Some(padding),
            ..Self::none([batch, 1, 1, key_len], device)
        }
    }

    /// Blocks both the future and padded positions: [`causal`](Self::causal) and [`padding`](Self::padding).
    ///
    /// # Shapes
    /// - padding: `[batch or 1, key_len]`, `true` = blocked
    ///
    /// # Panics
    /// When there are more queries than keys.
    pub fn causal_padding(query_len: usize, padding: Tensor<B, 2, Bool>) -> Self {
        let [_, key_len] = padding.dims();
        Self::causal_padding_from(first_of_last(query_len, key_len), query_len, padding)
    }

    /// [`causal_padding`](Self::causal_padding), with the first query at key position `first`.
    ///
    /// # Shapes
    /// - padding: `[batch or 1, key_len]`, `true` = blocked
    pub fn causal_padding_from(
        first: usize,
        query_len: usize,
        padding: Tensor<B, 2, Bool>,
    ) -> Self {
        let ([batch, key_len], device) = (padding.dims(), padding.device());
        Self {
            causal: Some(first),
            padding: Some(padding),
            ..Self::none([batch, 1, query_len, key_len], device)
        }
    }

    /// Blocks any keys.
    ///
    /// # Shapes
    /// - blocked: `[batch or 1, n_heads or 1, query_len or 1, key_len]`, `true` = blocked
    pub fn from_blocked(blocked: Tensor<B, 4, Bool>) -> Self {
        let (dims, device) = (blocked.dims(), blocked.device());
        Self {
            any: Some(blocked),
            ..Self::none(dims, device)
        }
    }

    /// A bias on the scores of all keys, none of which is blocked: [`with_bias`](Self::with_bias) on a mask that
    /// blocks nothing.
    ///
    /// # Shapes
    /// - bias: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    pub fn from_bias(bias: Tensor<B, 4>) -> Self {
        let [_, _, _, key_len] = bias.dims();
        Self::none([1, 1, 1, key_len], bias.device()).with_bias(bias)
    }

    /// Adds a bias to the scores `Q Kᵀ / √d_k`, such as ALiBi or T5's relative biases. Repeated calls add up.
    ///
    /// The bias may be learned: it gets its gradient, and attention is then composed, not fused. Its values at
    /// blocked keys have no effect and no gradient. All other values must be finite: to block a key, use the mask,
    /// not a bias of −∞.
    ///
    /// # Shapes
    /// - bias: `[batch or 1, n_heads or 1, query_len or 1, key_len]`; each dimension of the mask becomes the
    ///   larger of both sizes
    ///
    /// # Panics
    /// When two sizes differ and neither is 1, when `key_len` differs, when the bias has more queries than a
    /// causal mask, or when its type differs from an earlier bias. Attention panics when its type differs from the
    /// scores.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_ndarray::NdArray;
    /// use transformer_kernels::{Mask, scaled_dot_product_attention};
    ///
    /// // A query and three keys whose scores are zero. The last key is in the future; the bias of ln 3 gives the
    /// // first key three times the weight of the second.
    /// let device = Default::default();
    /// let query = Tensor::<NdArray, 4>::zeros([1, 1, 1, 8], &device);
    /// let key = Tensor::zeros([1, 1, 3, 8], &device);
    /// let future = Tensor::from_data([[[[false, false, true]]]], &device);
    /// let bias = Tensor::from_data([[[[3.0_f32.ln(), 0.0, 9.0]]]], &device);
    /// let mask = Mask::from_blocked(future).with_bias(bias);
    /// let (_, weights) = scaled_dot_product_attention(query, key.clone(), key, Some(&mask), 0.0);
    /// let weights: Vec<f32> = weights.into_data().iter().collect();
    /// assert!((weights[0] - 0.75).abs() < 1e-6 && (weights[1] - 0.25).abs() < 1e-6);
    /// assert_eq!(weights[2], 0.0);
    /// ```
    pub fn with_bias(self, bias: Tensor<B, 4>) -> Self {
        let (found, own) = (bias.dims(), self.dims);
        let fits = |(&bias, own): (&usize, usize)| bias == own || bias == 1 || own == 1;
        assert!(
            found[3] == own[3] && found.iter().zip(own).all(fits),
            "a bias {found:?} for a mask {own:?}"
        );
        // The mask of a single query does not apply to others.
        assert!(
            self.causal.is_none() || found[2] <= own[2],
            "a bias {found:?} for a causal mask {own:?}"
        );
        let bias = match self.bias {
            Some(before) => {
                let types = [bias.dtype(), before.dtype()];
                assert_eq!(types[0], types[1], "types of two biases");
                before + bias
            }
            None => bias,
        };
        Self {
            bias: Some(bias),
            dims: std::array::from_fn(|at| found[at].max(own[at])),
            expanded: Arc::default(),
            ..self
        }
    }

    /// The padded positions of a mask built from padding, `[batch or 1, key_len]`.
    pub fn padded(&self) -> Option<&Tensor<B, 2, Bool>> {
        self.padding.as_ref()
    }

    /// The blocked keys. A [bias](Self::with_bias) may make the mask larger than this.
    ///
    /// # Shapes
    /// - output: `[batch or 1, n_heads or 1, query_len or 1, key_len]`, `true` = blocked
    pub fn blocked(&self) -> Tensor<B, 4, Bool> {
        let [_, _, query_len, key_len] = self.dims;
        let future = self.causal.map(|first| {
            let lens = [query_len, key_len];
            Tensor::<B, 2, Bool>::tril_mask(lens, first as i64, &self.device)
                .unsqueeze_dims(&[0, 1])
        });
        let padding = self.padding.clone();
        let padding = padding.map(|padding| padding.unsqueeze_dims(&[1, 1]));
        let parts = [padding, future, self.any.clone()].into_iter().flatten();
        let blocked = parts.reduce(|one: Tensor<B, 4, Bool>, other| {
            let dims = [one.dims(), other.dims()];
            let dims: [usize; 4] = std::array::from_fn(|at| dims[0][at].max(dims[1][at]));
            one.expand(dims).bool_or(other.expand(dims))
        });
        blocked.unwrap_or_else(|| Tensor::zeros([1, 1, 1, key_len], &self.device))
    }

    /// The mask as a bias of this type.
    pub(crate) fn expanded(&self, dtype: DType) -> Expanded<B> {
        let kept = self.expanded.get();
        if let Some(kept) = kept.filter(|kept| kept.dtype == dtype) {
            return kept.clone();
        }
        // Outside the lock: a backend's threads may do other work while they wait.
        let expanded = self.expand(dtype);
        // No effect if one is already stored.
        let _ = self.expanded.set(expanded.clone());
        expanded
    }

    fn expand(&self, dtype: DType) -> Expanded<B> {
        let blocked = self.blocked();
        let zeros = Tensor::<B, 4>::zeros(blocked.dims(), (&self.device, dtype));
        let bias = match &self.bias {
            Some(bias) => zeros + bias.clone(),
            None => zeros,
        };
        // With causality alone, a query always attends to the first key.
        let rows_can_be_blocked = self.padding.is_some() || self.any.is_some();
        Expanded {
            dtype,
            bias: bias.mask_fill(blocked.clone(), lowest(dtype)),
            blocked_rows: rows_can_be_blocked.then(|| blocked.all_dim(3)),
        }
    }

    /// Panics unless it fits scores of this shape and type.
    pub(crate) fn check(&self, scores: [usize; 4], dtype: DType) {
        let fits = |(&mask, all): (&usize, usize)| mask == 1 || mask == all;
        assert!(
            self.dims[3] == scores[3]
                && self.dims.iter().zip(scores).all(fits)
                && (self.causal.is_none() || self.dims[2] == scores[2]),
            "a mask {:?} for scores {scores:?}",
            self.dims
        );
        if let Some(bias) = &self.bias {
            let found = bias.dtype();
            assert!(
                found == dtype,
                "a bias of {found:?} for scores of {dtype:?}"
            );
        }
    }

    /// The mask for the kernels of `I`; `None` if it is not of their backend, or if its bias is learned: their
    /// backward pass has no gradient for it.
    pub(crate) fn tensors<I: Kernels>(&self, dtype: DType) -> Option<MaskTensors<I>> {
        let padding = match &self.padding {
            Some(padding) => Some(same(padding.clone().into_primitive())?),
            None => None,
        };
        let (bias, blocked_rows) = match &self.any {
            Some(_) => {
                let expanded = self.expanded(dtype);
                (Some(expanded.bias), expanded.blocked_rows)
            }
            None => (self.bias.clone(), None),
        };
        let blocked_rows = match (&bias, &blocked_rows) {
            (Some(bias), Some(rows)) => Some(same(row_by_row(bias, rows).into_primitive())?),
            _ => None,
        };
        let bias = match &bias {
            Some(bias) => {
                let bias = operand::<B, I, 4>(bias).filter(|bias| !bias.is_tracked())?;
                Some(bias.primitive)
            }
            None => None,
        };
        Some(MaskTensors {
            causal: self.causal,
            padding,
            bias,
            blocked_rows,
        })
    }
}

/// The position of the first query, if the queries are at the last positions.
fn first_of_last(query_len: usize, key_len: usize) -> usize {
    assert!(
        query_len <= key_len,
        "{query_len} queries cannot be the last of {key_len} positions"
    );
    key_len - query_len
}

/// One boolean per row of a bias.
fn row_by_row<B: Backend>(bias: &Tensor<B, 4>, rows: &Tensor<B, 4, Bool>) -> Tensor<B, 4, Bool> {
    let [batch, heads, queries, _] = bias.dims();
    let shape = [batch, heads, queries, 1];
    match rows.dims() == shape {
        true => rows.clone(),
        false => rows.clone().expand(shape),
    }
}

/// [`LOWEST`], for scores of this type.
fn lowest(dtype: DType) -> f64 {
    dtype
        .finfo()
        .map_or(f64::from(LOWEST), |range| range.min / 2.0)
}

#[cfg(test)]
mod tests {
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    use super::*;
    use crate::ProductPrecision::F32;
    use crate::testing::{on_each, plain, tensor, values};
    use crate::{AttentionWeights, Heads, Operands, attention};

    on_each!(kernels_need_no_expanded_mask);

    /// No tensor of the scores' size is ever created.
    fn kernels_need_no_expanded_mask<I: Kernels>() {
        let heads = Heads {
            n_heads: 2,
            d_k: 4,
            d_v: 4,
        };
        let packed = tensor::<Autodiff<I>, 3>(1, [3, 6, 2 * (4 + 4 + 4)]);
        let operands = Operands::SelfPacked(&packed);
        let padding = Tensor::<Autodiff<I>, 2, Bool>::zeros([3, 6], &Default::default());
        let mask = Mask::causal_padding(6, padding);
        let attend = |wanted| attention(operands, heads, Some(&mask), 0.0, wanted, F32);
        attend(AttentionWeights::Discard).output.sum().backward();
        assert!(mask.expanded.get().is_none());
        attend(AttentionWeights::Return);
        assert!(mask.expanded.get().is_some());
    }

    /// Each row of the mask as a word, with `x` for blocked keys.
    fn drawn(mask: &Mask<NdArray>) -> Vec<String> {
        let [_, _, _, key_len] = mask.blocked().dims();
        let blocked: Vec<bool> = mask.blocked().into_data().iter().collect();
        blocked
            .chunks(key_len)
            .map(|row| row.iter().map(|&b| if b { 'x' } else { '.' }).collect())
            .collect()
    }

    #[test]
    fn causal_queries_are_the_last_positions() {
        let causal =
            |query_len, key_len| drawn(&Mask::causal(query_len, key_len, &Default::default()));
        assert_eq!(causal(3, 3), [".xx", "..x", "..."]);
        assert_eq!(causal(2, 5), ["....x", "....."]);
        assert_eq!(causal(1, 4), ["...."]);
    }

    #[test]
    fn causal_and_padding_masks_are_combined() {
        let padding = [[false, false, true], [true, false, false]];
        let padding = Tensor::from_data(padding, &Default::default());
        let mask = Mask::causal_padding(2, padding);
        assert_eq!(mask.blocked().dims(), [2, 1, 2, 3]);
        assert_eq!(drawn(&mask), ["..x", "..x", "x.x", "x.."]);
    }

    /// Of five keys, the first two precede the queries.
    #[test]
    fn queries_may_begin_at_any_position() {
        let device = Default::default();
        let causal = Mask::causal_from(1, 2, 5, &device);
        assert_eq!(drawn(&causal), ["..xxx", "...xx"]);
        let padding = Tensor::from_data([[true, false, false, false, false]], &device);
        let both = Mask::causal_padding_from(1, 2, padding);
        assert_eq!(drawn(&both), ["x.xxx", "x..xx"]);
    }

    #[test]
    fn clones_are_expanded_once() {
        let mask = Mask::<NdArray>::causal(3, 5, &Default::default());
        let copy = mask.clone();
        mask.expanded(DType::F32);
        assert!(copy.expanded.get().is_some());
        // Adding a bias makes another mask.
        let biased = copy.with_bias(plain(1, [1, 1, 1, 5]));
        assert!(biased.expanded.get().is_none());
    }

    #[test]
    fn a_mask_is_a_bias_of_each_type_that_is_asked_for() {
        let mask = Mask::<NdArray>::causal(2, 2, &Default::default());
        for dtype in [DType::F32, DType::F64, DType::F32] {
            let bias = mask.expanded(dtype).bias;
            assert_eq!(bias.dtype(), dtype);
            assert_eq!(values(bias), [0.0, lowest(dtype), 0.0, 0.0]);
        }
    }

    #[test]
    #[should_panic(expected = "a bias [1, 2, 3, 5] for a causal mask [1, 1, 1, 5]")]
    fn a_bias_of_more_queries_than_a_causal_mask_is_refused() {
        let mask = Mask::<NdArray>::causal(1, 5, &Default::default());
        mask.with_bias(plain(1, [1, 2, 3, 5]));
    }
}
