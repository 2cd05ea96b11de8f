//! Which keys a query may not attend to, and a bias on the scores of the others.

use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, DType, Tensor};
use transformer_cpu::LOWEST;

use crate::autodiff::same;
use crate::kernels::{Kernels, MaskTensors};

/// Which keys a query may not attend to, and a bias on the scores of the others. **`true` means blocked.**
///
/// Kernels receive the structure of a mask that has one: causality and padding. They skip blocked keys, wholly or
/// in part, and need no tensor of the size of the scores. Compositions receive a bias. A mask and its clones are
/// expanded to a bias once, when it is first needed; for scores of another type than the first, at each use.
///
/// A query whose every key is blocked attends to nothing: its weights are zero.
#[derive(Debug, Clone)]
pub struct Mask<B: Backend> {
    /// The position of the first query, where the keys after each query are blocked.
    causal: Option<usize>,
    /// `[batch or 1, key_len]`
    padding: Option<Tensor<B, 2, Bool>>,
    /// Blocked keys without a structure.
    any: Option<Tensor<B, 4, Bool>>,
    /// As it was given, also at blocked keys.
    bias: Option<Tensor<B, 4>>,
    /// The sizes of blocked keys and bias together: `[batch or 1, n_heads or 1, query_len or 1, key_len]`.
    dims: [usize; 4],
    device: B::Device,
    /// The mask as a bias of the type that was requested first.
    expanded: Arc<OnceLock<Expanded<B>>>,
}

/// A mask as a bias.
#[derive(Debug, Clone)]
pub(crate) struct Expanded<B: Backend> {
    /// The requested type.
    dtype: DType,
    /// The bias; [`lowest`] at blocked keys.
    pub bias: Tensor<B, 4>,
    /// Queries whose every key is blocked, where there can be any. Each of the first three sizes is that of
    /// `bias`, or 1 and broadcast to it; the last is 1.
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

    /// Blocks the keys after each query; the first query is at the position `first` of the keys.
    pub fn causal(first: usize, query_len: usize, key_len: usize, device: &B::Device) -> Self {
        Self {
            causal: Some(first),
            ..Self::none([1, 1, query_len, key_len], device.clone())
        }
    }

    /// Blocks the keys at padded positions, for every query.
    ///
    /// # Shapes
    /// - padding: `[batch or 1, key_len]`
    pub fn padding(padding: Tensor<B, 2, Bool>) -> Self {
        let ([batch, key_len], device) = (padding.dims(), padding.device());
        Self {
            padding: Some(padding),
            ..Self::none([batch, 1, 1, key_len], device)
        }
    }

    /// Blocks the keys of both [`causal`](Self::causal) and [`padding`](Self::padding).
    ///
    /// # Shapes
    /// - padding: `[batch or 1, key_len]`
    pub fn causal_padding(first: usize, query_len: usize, padding: Tensor<B, 2, Bool>) -> Self {
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
    /// - blocked: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    pub fn from_blocked(blocked: Tensor<B, 4, Bool>) -> Self {
        let (dims, device) = (blocked.dims(), blocked.device());
        Self {
            any: Some(blocked),
            ..Self::none(dims, device)
        }
    }

    /// A bias on the scores of all keys, none of which is blocked.
    ///
    /// # Shapes
    /// - bias: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    pub fn from_bias(bias: Tensor<B, 4>) -> Self {
        let [_, _, _, key_len] = bias.dims();
        Self::none([1, 1, 1, key_len], bias.device()).with_bias(bias)
    }

    /// Adds a bias to the scores, and to the bias of an earlier call. Its values at blocked keys have no effect;
    /// all others must be finite.
    ///
    /// # Shapes
    /// - bias: `[batch or 1, n_heads or 1, query_len or 1, key_len]`; the mask then has in each dimension the
    ///   larger of both sizes
    ///
    /// # Panics
    /// When two sizes differ and neither is 1, when `key_len` differs, when the bias has more queries than a causal
    /// mask, or another type of numbers than the bias before.
    pub fn with_bias(self, bias: Tensor<B, 4>) -> Self {
        let (found, own) = (bias.dims(), self.dims);
        let fits = |(&bias, own): (&usize, usize)| bias == own || bias == 1 || own == 1;
        assert!(
            found[3] == own[3] && found.iter().zip(own).all(fits),
            "a bias {found:?} for a mask {own:?}"
        );
        // The mask of a single query says nothing about others.
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

    /// The blocked keys. A [bias](Self::with_bias) may make the mask larger than this.
    ///
    /// # Shapes
    /// - output: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
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
        // Not within the lock: a backend's threads may do other work while they wait.
        let expanded = self.expand(dtype);
        // Without effect if one is kept already.
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
        // By causality alone, a query always attends to the first key.
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

    /// The mask for kernels. `primitive` converts a bias to their backend; `None` where it cannot.
    pub(crate) fn tensors<I: Kernels>(
        &self,
        dtype: DType,
        primitive: impl Fn(&Tensor<B, 4>) -> Option<FloatTensor<I>>,
    ) -> Option<MaskTensors<I>> {
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
            Some(bias) => Some(primitive(bias)?),
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

/// One boolean for each row of a bias.
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

    /// Nothing of the size of the scores is made, not even once.
    fn kernels_need_no_expanded_mask<I: Kernels>() {
        let heads = Heads {
            n_heads: 2,
            d_k: 4,
            d_v: 4,
        };
        let packed = tensor::<Autodiff<I>, 3>(1, [3, 6, 2 * (4 + 4 + 4)]);
        let operands = Operands::SelfPacked(&packed);
        let padding = Tensor::<Autodiff<I>, 2, Bool>::zeros([3, 6], &Default::default());
        let mask = Mask::causal_padding(0, 6, padding);
        let attend = |wanted| attention(operands, heads, Some(&mask), 0.0, wanted, F32);
        attend(AttentionWeights::Discard).output.sum().backward();
        assert!(mask.expanded.get().is_none());
        attend(AttentionWeights::Return);
        assert!(mask.expanded.get().is_some());
    }

    #[test]
    fn clones_are_expanded_once() {
        let mask = Mask::<NdArray>::causal(2, 3, 5, &Default::default());
        let copy = mask.clone();
        mask.expanded(DType::F32);
        assert!(copy.expanded.get().is_some());
        // A bias makes another mask.
        let biased = copy.with_bias(plain(1, [1, 1, 1, 5]));
        assert!(biased.expanded.get().is_none());
    }

    #[test]
    fn a_mask_is_a_bias_of_each_type_that_is_asked_for() {
        let mask = Mask::<NdArray>::causal(0, 2, 2, &Default::default());
        for dtype in [DType::F32, DType::F64, DType::F32] {
            let bias = mask.expanded(dtype).bias;
            assert_eq!(bias.dtype(), dtype);
            assert_eq!(values(bias), [0.0, lowest(dtype), 0.0, 0.0]);
        }
    }

    #[test]
    #[should_panic(expected = "a bias [1, 2, 3, 5] for a causal mask [1, 1, 1, 5]")]
    fn a_bias_of_more_queries_than_a_causal_mask_is_refused() {
        let mask = Mask::<NdArray>::causal(4, 1, 5, &Default::default());
        mask.with_bias(plain(1, [1, 2, 3, 5]));
    }
}
