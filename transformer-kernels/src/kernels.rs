//! What a backend computes in one pass.

use std::fmt::Debug;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};

use crate::adam::AdamStep;
use crate::attention::Heads;

/// Attention's inputs: queries, keys and values side by side in rows, as projections leave them.
#[derive(Debug, Clone)]
pub struct Packed<I: Backend> {
    /// Queries in the first columns: `[batch, query_len, ..]`.
    pub query: FloatTensor<I>,
    /// Keys and then values: `[batch, key_len, ..]`; `None` where they follow the queries.
    pub key_value: Option<FloatTensor<I>>,
    pub heads: Heads,
}

/// What attention's way back needs.
#[derive(Debug, Clone)]
pub struct Attended<I: Kernels> {
    /// Before dropout: `[batch, n_heads, query_len, key_len]` in whatever shape.
    pub weights: FloatTensor<I>,
    pub dropped: Option<I::Dropped>,
}

/// The kernels of a backend, on tensors that [`takes`](Self::takes) accepts.
pub trait Kernels: Backend {
    /// What dropout kept.
    type Dropped: Clone + Send + Debug + 'static;

    /// Whether these numbers are of the kind, and where, the kernels are made for.
    fn takes(tensor: &FloatTensor<Self>) -> bool;

    /// `x W + b`, where the weight may be stored as `Wᵀ`.
    fn linear_forward(
        x: &FloatTensor<Self>,
        weight: &FloatTensor<Self>,
        bias: Option<&FloatTensor<Self>>,
        transposed: bool,
    ) -> FloatTensor<Self>;

    /// Gradients of `x` and the weight.
    fn linear_backward(
        grad: &FloatTensor<Self>,
        x: &FloatTensor<Self>,
        weight: &FloatTensor<Self>,
        transposed: bool,
    ) -> [FloatTensor<Self>; 2];

    /// The sum of all rows.
    fn sum_rows(x: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// `dropout(max(0, x + b))`, where `p` may be zero.
    fn relu_dropout_forward(
        x: &FloatTensor<Self>,
        bias: &FloatTensor<Self>,
        p: f64,
    ) -> FloatTensor<Self>;

    /// Gradient of `x`. What was dropped and what was below zero is zero in the output.
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

    /// Gradients of `x`, `gamma` and `beta`.
    fn layer_norm_backward(
        grad: &FloatTensor<Self>,
        x: &FloatTensor<Self>,
        gamma: &FloatTensor<Self>,
        statistics: &[FloatTensor<Self>; 2],
    ) -> [FloatTensor<Self>; 3];

    /// `onto + dropout(x)`, with `p` above zero.
    fn dropout(
        x: &FloatTensor<Self>,
        onto: Option<&FloatTensor<Self>>,
        p: f64,
    ) -> (FloatTensor<Self>, Self::Dropped);

    fn dropout_backward(
        grad: &FloatTensor<Self>,
        dropped: &Self::Dropped,
        p: f64,
    ) -> FloatTensor<Self>;

    /// Output `[batch, query_len, n_heads · d_v]`.
    fn attention_forward(
        packed: &Packed<Self>,
        bias: Option<&FloatTensor<Self>>,
        blocked_rows: Option<&BoolTensor<Self>>,
        p: f64,
    ) -> (FloatTensor<Self>, Attended<Self>)
    where
        Self: Sized;

    /// Gradients of the packed tensors.
    fn attention_backward(
        grad: &FloatTensor<Self>,
        packed: &Packed<Self>,
        attended: &Attended<Self>,
        p: f64,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>)
    where
        Self: Sized;

    /// Attention without dropout where no gradients are taken, to keys and values in parts, as
    /// [`attend`](crate::attend) has them; `None` where the backend's own operations do as well.
    fn attend(
        query: &FloatTensor<Self>,
        parts: &[[FloatTensor<Self>; 2]],
        heads: Heads,
        bias: Option<&FloatTensor<Self>>,
        blocked_rows: Option<&BoolTensor<Self>>,
    ) -> Option<FloatTensor<Self>>;

    /// Writes columns of `[batch, new_len, ..]` into `[batch, n_heads, places, d_head]`, or gives that back
    /// where the backend's own operations do as well.
    fn write_heads(
        room: FloatTensor<Self>,
        place: usize,
        rows: &FloatTensor<Self>,
        column: usize,
    ) -> Result<FloatTensor<Self>, FloatTensor<Self>>;

    /// The logarithm of the softmax of each row.
    fn log_softmax_of_rows(x: &FloatTensor<Self>) -> FloatTensor<Self>;

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
