//! The heads of multi-head attention, after the input projections (§3.2.2).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::nn::attention::{AttentionConfig, AttentionOutput, scaled_dot_product_attention};
use crate::nn::cache::KeyValue;
use crate::nn::dropout::Dropout;
use crate::nn::error::assert_sizes;
use crate::nn::init::WeightInit;
use crate::nn::linear::linear;
use crate::nn::relative_positions::RelativePositions;
use transformer_kernels::{
    self as ops, AttentionWeights, Heads, Mask, Operands, ProductPrecision, join_heads, split_heads,
};

impl AttentionConfig {
    /// Heads with weights drawn from the backend's random number generator, for attention with input projections of
    /// your own.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_heads<B: Backend>(&self, device: &B::Device) -> AttentionHeads<B> {
        self.init_heads_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// Heads with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_heads_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> AttentionHeads<B> {
        let heads = self.checked_heads();
        let width = heads.n_heads * heads.d_v;
        let projection = init.linear(width, self.d_model, self.bias, device);
        AttentionHeads {
            n_kv_heads: self.key_value_heads().n_heads,
            scaled: self.scaled,
            ..AttentionHeads::new(projection, Dropout::new(self.dropout), heads)
        }
    }
}

/// Multi-head attention after the projections of queries, keys and values: all heads, and `W^O` (§3.2.2).
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_core::ops::Operands;
/// use transformer_core::nn::{AttentionWeights, AttentionConfig};
///
/// let device = Default::default();
/// let heads = AttentionConfig::new(32, 4).init_heads::<NdArray>(&device);
///
/// // Queries, keys and values of five positions side by side, from a projection of your own.
/// let packed = Tensor::zeros([2, 5, 3 * 32], &device);
/// let attention = heads.forward(Operands::SelfPacked(&packed), None, AttentionWeights::Discard);
/// assert_eq!(attention.output.dims(), [2, 5, 32]);
/// ```
#[derive(Module, Debug)]
pub struct AttentionHeads<B: Backend> {
    /// `W^O`: `[n_heads · d_v, d_model]`.
    pub projection: Linear<B>,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    n_heads: usize,
    n_kv_heads: usize,
    d_k: usize,
    d_v: usize,
    scaled: bool,
    /// The precision of all matrix multiplications in attention and its projections, in training.
    #[module(skip)]
    pub(crate) precision: ProductPrecision,
}

impl<B: Backend> AttentionHeads<B> {
    /// Heads of these sizes, with a `W^O` of your own: `[n_heads · d_v, d_model]`. There are as many key/value heads as
    /// query heads, and scores are divided by √d_k; for other choices see [`AttentionConfig::init_heads`].
    ///
    /// # Panics
    /// When a size is zero, or `W^O` does not have `n_heads · d_v` rows.
    pub fn new(projection: Linear<B>, dropout: Dropout, heads: Heads) -> Self {
        let Heads { n_heads, d_k, d_v } = heads;
        assert_sizes(&[("n_heads", n_heads), ("d_k", d_k), ("d_v", d_v)]);
        // Only the shape: the values may not be initialized yet.
        let shape: [usize; 2] = projection.weight.lazy_shape().dims();
        assert_eq!(shape[0], n_heads * d_v, "rows of `W^O` for {heads:?}");
        Self {
            projection,
            dropout,
            n_heads,
            n_kv_heads: n_heads,
            d_k,
            d_v,
            scaled: true,
            precision: ProductPrecision::F32,
        }
    }

    /// Number and widths of the heads.
    pub fn sizes(&self) -> Heads {
        Heads {
            n_heads: self.n_heads,
            d_k: self.d_k,
            d_v: self.d_v,
        }
    }

    /// Number and widths of the key/value heads: those of [`sizes`](Self::sizes), unless the configuration has fewer.
    pub fn key_value_sizes(&self) -> Heads {
        Heads {
            n_heads: self.n_kv_heads,
            ..self.sizes()
        }
    }

    /// The concatenated outputs of all heads, multiplied by `W^O`.
    ///
    /// # Shapes
    /// - operands: projected queries, keys and values, see [`Operands`]; keys and values have the heads of
    ///   [`key_value_sizes`](Self::key_value_sizes)
    /// - mask: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    /// - output: see [`AttentionOutput`]
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward(
        &self,
        operands: Operands<'_, B>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> AttentionOutput<B> {
        match operands {
            _ if self.n_kv_heads == self.n_heads => self.attend(operands, mask, weights),
            Operands::SelfPacked(packed) => {
                let packed = self.with_repeated(packed, self.n_heads * self.d_k);
                self.attend(Operands::SelfPacked(&packed), mask, weights)
            }
            Operands::CrossPacked { query, key_value } => {
                let key_value = &self.with_repeated(key_value, 0);
                self.attend(Operands::CrossPacked { query, key_value }, mask, weights)
            }
        }
    }

    /// Repeats the keys and values of rows, which start at `column`, for every query head of their group.
    ///
    /// # Shapes
    /// - rows: `[batch, len, column + n_kv_heads · (d_k + d_v)]`
    /// - output: `[batch, len, column + n_heads · (d_k + d_v)]`
    fn with_repeated(&self, rows: &Tensor<B, 3>, column: usize) -> Tensor<B, 3> {
        let [batch, len, _] = rows.dims();
        let mut columns =
            Vec::from_iter((column > 0).then(|| rows.clone().slice_dim(2, 0..column)));
        let mut first = column;
        for width in [self.d_k, self.d_v] {
            let last = first + self.n_kv_heads * width;
            let heads = rows.clone().slice_dim(2, first..last);
            let heads = self.repeated(heads.reshape([batch, len, self.n_kv_heads, width]), 2);
            columns.push(heads.reshape([batch, len, self.n_heads * width]));
            first = last;
        }
        Tensor::cat(columns, 2)
    }

    /// Repeats heads, so that the gradients of a group add up: head `h` of the output is head `h / group` of the input.
    ///
    /// # Shapes
    /// - heads: 4 dimensions, with `n_kv_heads` at `dim`
    /// - output: the same, with `n_heads` at `dim`
    fn repeated(&self, heads: Tensor<B, 4>, dim: usize) -> Tensor<B, 4> {
        let group = self.n_heads / self.n_kv_heads;
        if group == 1 {
            return heads;
        }
        let mut shape = heads.dims();
        let mut groups = [group; 5];
        groups[..=dim].copy_from_slice(&shape[..=dim]);
        groups[dim + 2..].copy_from_slice(&shape[dim + 1..]);
        shape[dim] = self.n_heads;
        let heads: Tensor<B, 5> = heads.unsqueeze_dim(dim + 1);
        heads.expand(groups).reshape(shape)
    }

    /// [`forward`](Self::forward) with as many key/value heads as query heads.
    fn attend(
        &self,
        operands: Operands<'_, B>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> AttentionOutput<B> {
        let p = self.dropout.probability(operands.query());
        let query;
        let operands = match self.scaled {
            true => operands,
            false => {
                query = self.times_root(operands.query());
                operands.with_query(&query)
            }
        };
        let (sizes, precision) = (self.sizes(), self.precision);
        let heads = ops::attention(operands, sizes, mask, p, weights, precision);
        AttentionOutput {
            output: linear(&self.projection, heads.output, precision),
            weights: heads.weights,
        }
    }

    /// [`forward`](Self::forward) with cached keys and values.
    ///
    /// # Shapes
    /// - query: `[batch, query_len, n_heads · d_k or more]`, the queries of all heads in the first columns, which are
    ///   the last of the keys if `relative` is given
    pub(crate) fn forward_to(
        &self,
        query: &Tensor<B, 3>,
        kept: &KeyValue<B>,
        mask: Option<&Mask<B>>,
        relative: Option<&RelativePositions<B>>,
        weights: AttentionWeights,
    ) -> AttentionOutput<B> {
        let query = match self.scaled {
            true => split_heads(query, 0, self.n_heads, self.d_k),
            false => split_heads(&self.times_root(query), 0, self.n_heads, self.d_k),
        };
        let [key, value] = [&kept.key, &kept.value].map(|heads| self.repeated(heads.clone(), 1));
        let (output, all) = match relative {
            Some(relative) => relative.attention(query, key, value, mask, &self.dropout),
            None => scaled_dot_product_attention(query, key, value, mask, &self.dropout),
        };
        AttentionOutput {
            output: linear(&self.projection, join_heads(output), self.precision),
            weights: (weights == AttentionWeights::Return).then_some(all),
        }
    }

    /// Multiplies the queries, in the first columns, by √d_k, which cancels the division of the scores.
    ///
    /// # Shapes
    /// - x and output: `[batch, query_len, n_heads · d_k or more]`
    fn times_root(&self, x: &Tensor<B, 3>) -> Tensor<B, 3> {
        let ([_, _, width], queries) = (x.dims(), self.n_heads * self.d_k);
        let scaled = x.clone().slice_dim(2, 0..queries) * (self.d_k as f64).sqrt();
        match width == queries {
            true => scaled,
            false => Tensor::cat(vec![scaled, x.clone().slice_dim(2, queries..width)], 2),
        }
    }
}
