//! The interface of a backend's kernels.

use std::fmt::Debug;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor, ModuleOps};
use transformer_cpu::{
    AdamStep, AttentionParents, Heads, NormParents, ProductPrecision, WeightLayout,
};

/// The inputs of attention: queries, keys and values side by side in rows, as projections produce them.
#[derive(Debug, Clone)]
pub struct Packed<I: Backend> {
    /// Queries in the first columns: `[batch, query_len, ..]`.
    pub query: FloatTensor<I>,
    /// Keys, then values: `[batch, key_len, ..]`; `None` if they follow the queries in `query`.
    pub key_value: Option<FloatTensor<I>>,
    pub heads: Heads,
}

/// The parts of a mask ([`crate::Mask`]). A key is blocked if any part blocks it.
#[derive(Debug, Clone)]
pub struct MaskTensors<I: Backend> {
    /// The position of the first query, if the keys after each query are blocked.
    pub causal: Option<usize>,
    /// `[batch or 1, key_len]`, `true` = blocked.
    pub padding: Option<BoolTensor<I>>,
    /// Added to the scores: `[batch or 1, n_heads or 1, query_len or 1, key_len]`. At keys that it blocks, it is
    /// half the lowest finite value. Its values at keys blocked by causality or padding have no effect.
    pub bias: Option<FloatTensor<I>>,
    /// Queries whose keys are all blocked by the bias: one boolean per row of the bias.
    pub blocked_rows: Option<BoolTensor<I>>,
}

/// The kernels of a backend, on tensors that it [`supports`](Self::supports), after [`prepare`](Self::prepare).
///
/// Shapes and types are already checked. A gradient that is not requested is not computed: its function is not
/// called, or returns `None` for it.
pub trait Kernels: Backend {
    /// The entries that dropout kept.
    type Dropped: Clone + Send + Debug + 'static;

    /// What attention keeps for its backward pass besides its inputs, its mask and `p`.
    type Attended: Clone + Send + Debug + 'static;

    /// Whether linear layers support bf16 matrix multiplication when gradients are computed
    /// ([`ProductPrecision::Bf16`](crate::ProductPrecision::Bf16)).
    const BF16_LINEAR: bool = false;

    /// Whether attention supports bf16 matrix multiplication, of operands from [`bf16_factor`](Self::bf16_factor);
    /// if not, it receives f32.
    const BF16_ATTENTION: bool = false;

    /// An operand of bf16 matrix multiplication, in the form that `linear_*` and `attention_*` receive and that is
    /// kept for gradients: rounded, or in f32 and rounded during the multiplication. Biases and results are in f32
    /// in either case.
    fn bf16_factor(tensor: &FloatTensor<Self>) -> FloatTensor<Self> {
        tensor.clone()
    }

    /// Whether there are kernels for the tensor's type.
    fn supports(tensor: &FloatTensor<Self>) -> bool;

    /// Prepares what the backend's operations need once per process.
    fn prepare() {}

    /// Looks up the tokens' rows in a table `[vocab_size, d_model]`, times `scale`: `[batch, len, d_model]`.
    fn embed(table: &FloatTensor<Self>, tokens: &IntTensor<Self>, scale: f64) -> FloatTensor<Self> {
        let rows = Self::embedding(table.clone(), tokens.clone());
        match scale {
            1.0 => rows,
            _ => Self::float_mul_scalar(rows, scale.into()),
        }
    }

    /// Gradient of the table, `[vocab_size, d_model]`, given the gradient of the output.
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

    /// `x W + b`, on rows `[rows, d_input]`.
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

    /// The sum of the squares of all values: `[1]`.
    fn sum_of_squares(x: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// `dropout(max(0, x + b))`, where `p` may be zero.
    fn relu_dropout(x: &FloatTensor<Self>, bias: &FloatTensor<Self>, p: f64) -> FloatTensor<Self>;

    /// Gradient of `x`. Dropped and negative entries are zero in the output.
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
        reason = "two gradients, each computed only if requested"
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

    /// Attention without dropout and without gradients: `[batch, query_len, n_heads · d_v]`; `None` if the
    /// backend's own operations are as fast.
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

    /// Gradients of the packed tensors. If keys and values follow the queries, the first holds their gradients,
    /// too.
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

    /// Rotates the first heads of rows `[batch, len, width]` by turns `[len, d_k]`.
    fn turn_heads(
        x: &FloatTensor<Self>,
        turns: &FloatTensor<Self>,
        n_heads: usize,
    ) -> FloatTensor<Self>;

    /// The log-softmax of each row.
    fn log_softmax_forward(x: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// Per row: the smoothed loss, the log-sum-exp of the logits, the label's logit and the largest logit.
    fn cross_entropy(
        logits: &FloatTensor<Self>,
        labels: &IntTensor<Self>,
        smoothing: f64,
    ) -> [FloatTensor<Self>; 4];

    /// Gradient of the logits, given the gradient of each row's loss.
    fn cross_entropy_backward(
        grad: &FloatTensor<Self>,
        logits: FloatTensor<Self>,
        labels: &IntTensor<Self>,
        log_sum_exp: &FloatTensor<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self>;

    /// A parameter and its moments after one step.
    fn adam(
        parameter: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        moments: [FloatTensor<Self>; 2],
        step: &AdamStep,
    ) -> [FloatTensor<Self>; 3];
}
