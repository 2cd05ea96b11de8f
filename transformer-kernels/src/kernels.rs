//! The interface of a backend's kernels.

use std::fmt::Debug;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor, ModuleOps};
use transformer_cpu::{
    AdamStep, AttentionParents, Heads, NormParents, ProductPrecision, WeightLayout,
};

/// Attention's inputs: queries, keys and values side by side in rows, as projections leave them.
#[derive(Debug, Clone)]
pub struct Packed<I: Backend> {
    /// Queries in the first columns: `[batch, query_len, ..]`.
    pub query: FloatTensor<I>,
    /// Keys and then values: `[batch, key_len, ..]`; `None` where they follow the queries.
    pub key_value: Option<FloatTensor<I>>,
    pub heads: Heads,
}

/// A mask by its structure: [`crate::Mask`]. A key that any part blocks is blocked.
#[derive(Debug, Clone)]
pub struct MaskTensors<I: Backend> {
    /// The position of the first query, where the keys after each query are blocked.
    pub causal: Option<usize>,
    /// `[batch or 1, key_len]`, `true` = blocked.
    pub padding: Option<BoolTensor<I>>,
    /// Added to the scores: `[batch or 1, n_heads or 1, query_len or 1, key_len]`. It is half the lowest finite
    /// number at keys that it blocks. Its values at keys that causality or padding blocks have no effect.
    pub bias: Option<FloatTensor<I>>,
    /// Queries whose every key the bias blocks: one boolean for each row of the bias.
    pub blocked_rows: Option<BoolTensor<I>>,
}

/// The kernels of a backend, on tensors that it [`supports`](Self::supports), after [`prepare`](Self::prepare).
///
/// Shapes and types have been checked. A gradient that is not wanted is not computed: its function is not
/// called, or returns `None` for it.
pub trait Kernels: Backend {
    /// The entries that dropout kept.
    type Dropped: Clone + Send + Debug + 'static;

    /// The state that attention keeps for its backward pass beside its inputs, its mask and `p`.
    type Attended: Clone + Send + Debug + 'static;

    /// Whether linear maps have products in bf16, where gradients are taken
    /// ([`ProductPrecision::Bf16`](crate::ProductPrecision::Bf16)).
    const BF16_LINEAR: bool = false;

    /// Whether attention has products in bf16, of factors by [`bf16_factor`](Self::bf16_factor); if not, it receives
    /// f32.
    const BF16_ATTENTION: bool = false;

    /// A factor of products in bf16, as `linear_*` and `attention_*` receive it and as it is kept for gradients:
    /// rounded, or in f32 and rounded by the product. Biases and results are in f32 in either case.
    fn bf16_factor(tensor: &FloatTensor<Self>) -> FloatTensor<Self> {
        tensor.clone()
    }

    /// Whether there are kernels for the tensor's type.
    fn supports(tensor: &FloatTensor<Self>) -> bool;

    /// Makes the preparations that the backend's operations need once in a process.
    fn prepare() {}

    /// The tokens' rows of a table `[vocab_size, d_model]`, times `scale`: `[batch, len, d_model]`.
    fn embed(table: &FloatTensor<Self>, tokens: &IntTensor<Self>, scale: f64) -> FloatTensor<Self> {
        let rows = Self::embedding(table.clone(), tokens.clone());
        match scale {
            1.0 => rows,
            _ => Self::float_mul_scalar(rows, scale.into()),
        }
    }

    /// Gradient of the table, `[vocab_size, d_model]`, from that of the output.
    fn embed_backward(
        grad: &FloatTensor<Self>,
        table: &FloatTensor<Self>,
        tokens: &IntTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        let grad = match scale {
            1.0 => grad.clone(),
            _ => Self::float_mul_scalar(grad.clone(), scale.into()),
        };
        <Self as ModuleOps<Self>>::embedding_backward(table.clone(), grad, tokens.clone())
    }

    /// `x W + b` of rows `[rows, d_input]`.
    fn linear_forward(
        x: &FloatTensor<Self>,
        weight: &FloatTensor<Self>,
        bias: Option<&FloatTensor<Self>>,
        layout: WeightLayout,
        precision: ProductPrecision,
    ) -> FloatTensor<Self>;

    fn linear_input_gradient(
        grad: &FloatTensor<Self>,
        weight: &FloatTensor<Self>,
        layout: WeightLayout,
        precision: ProductPrecision,
    ) -> FloatTensor<Self>;

    fn linear_weight_gradient(
        grad: &FloatTensor<Self>,
        x: &FloatTensor<Self>,
        layout: WeightLayout,
        precision: ProductPrecision,
    ) -> FloatTensor<Self>;

    /// The sum of all rows.
    fn sum_rows(x: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// The sum of the squares of all numbers: `[1]`.
    fn sum_of_squares(x: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// `dropout(max(0, x + b))`, where `p` may be zero.
    fn relu_dropout(x: &FloatTensor<Self>, bias: &FloatTensor<Self>, p: f64) -> FloatTensor<Self>;

    /// Gradient of `x`. Entries that were dropped or below zero are zero in the output.
    fn relu_dropout_backward(
        grad: &FloatTensor<Self>,
        output: &FloatTensor<Self>,
        p: f64,
    ) -> FloatTensor<Self>;

    /// Output, means and reciprocal deviations.
    fn layer_norm_forward(
        x: &FloatTensor<Self>,
        gamma: &FloatTensor<Self>,
        beta: &FloatTensor<Self>,
        epsilon: f64,
    ) -> [FloatTensor<Self>; 3];

    /// Gradients of `x`, and of `gamma` and `beta`.
    #[allow(
        clippy::type_complexity,
        reason = "two gradients, either of which may not be wanted"
    )]
    fn layer_norm_backward(
        grad: &FloatTensor<Self>,
        x: &FloatTensor<Self>,
        gamma: &FloatTensor<Self>,
        statistics: &[FloatTensor<Self>; 2],
        wanted: NormParents,
    ) -> (Option<FloatTensor<Self>>, Option<[FloatTensor<Self>; 2]>);

    /// `residual + dropout(x)`, or `dropout(x)` without a residual, with `p` above zero.
    fn dropout(
        x: &FloatTensor<Self>,
        residual: Option<&FloatTensor<Self>>,
        p: f64,
    ) -> (FloatTensor<Self>, Self::Dropped);

    fn dropout_backward(
        grad: &FloatTensor<Self>,
        dropped: &Self::Dropped,
        p: f64,
    ) -> FloatTensor<Self>;

    /// Attention without dropout where no gradients are taken; `None` where the backend's own operations
    /// are as fast. `[batch, query_len, n_heads · d_v]`
    fn attention_without_gradients(
        packed: &Packed<Self>,
        mask: Option<&MaskTensors<Self>>,
    ) -> Option<FloatTensor<Self>>
    where
        Self: Sized;

    /// The output `[batch, query_len, n_heads · d_v]`, and the state for the backward pass.
    fn attention_forward(
        packed: &Packed<Self>,
        mask: Option<&MaskTensors<Self>>,
        p: f64,
    ) -> (FloatTensor<Self>, Self::Attended)
    where
        Self: Sized;

    /// Gradients of the packed tensors: the first holds keys and values, too, where they follow the queries.
    fn attention_backward(
        grad: &FloatTensor<Self>,
        packed: &Packed<Self>,
        mask: Option<&MaskTensors<Self>>,
        attended: &Self::Attended,
        p: f64,
        wanted: AttentionParents,
    ) -> [Option<FloatTensor<Self>>; 2]
    where
        Self: Sized;

    /// The logarithm of the softmax of each row.
    fn log_softmax_forward(x: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// For each row the smoothed loss, the logarithm of the summed exponentials, the label's logit and
    /// the largest logit.
    fn cross_entropy(
        logits: &FloatTensor<Self>,
        labels: &IntTensor<Self>,
        smoothing: f64,
    ) -> [FloatTensor<Self>; 4];

    /// Gradient of the logits, from that of each row's loss.
    fn cross_entropy_backward(
        grad: &FloatTensor<Self>,
        logits: FloatTensor<Self>,
        labels: &IntTensor<Self>,
        log_sum_exp: &FloatTensor<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self>;

    /// A parameter and its moments after a step.
    fn adam(
        parameter: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        moments: [FloatTensor<Self>; 2],
        step: &AdamStep,
    ) -> [FloatTensor<Self>; 3];
}
