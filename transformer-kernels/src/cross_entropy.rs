//! Cross entropy against smoothed labels, without anything else of the logits' size going forward.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{first, pass_back, plain, record, same, tracked, wrapped};
use crate::kernels::Kernels;

/// What cross entropy says of each row of logits `x` with the label `y`: `[rows]` each.
#[derive(Debug, Clone)]
pub struct RowLosses<B: Backend> {
    /// `lse(x) - (1 - ε) x_y - ε mean(x)`, which gradients flow through.
    pub loss: Tensor<B, 1>,
    /// `lse(x)`, the logarithm of the summed exponentials.
    pub log_sum_exp: Tensor<B, 1>,
    /// `x_y`
    pub at_label: Tensor<B, 1>,
    /// The largest of `x`.
    pub largest: Tensor<B, 1>,
}

/// Cross entropy of each row, against labels smoothed by ε.
///
/// # Shapes
/// - logits: `[rows, vocab_size]`
/// - labels: `[rows]`, each below vocab_size
pub fn cross_entropy<B: Backend>(
    logits: &Tensor<B, 2>,
    labels: &Tensor<B, 1, Int>,
    smoothing: f64,
) -> Option<RowLosses<B>> {
    first!(on::<B>(logits, labels, smoothing))
}

/// The logarithm of the softmax over the last dimension, where no gradients are taken.
///
/// # Shapes
/// - x and output: `[.., width]`
pub fn log_softmax<B: Backend, const D: usize>(x: &Tensor<B, D>) -> Option<Tensor<B, D>> {
    first!(log_softmax_on::<B, D>(x))
}

fn log_softmax_on<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
) -> Option<Tensor<B, D>> {
    let x = plain::<B, I, D>(x)?;
    Some(wrapped(I::log_softmax_of_rows(&x)))
}

fn on<B: Backend, I: Kernels>(
    logits: &Tensor<B, 2>,
    labels: &Tensor<B, 1, Int>,
    smoothing: f64,
) -> Option<RowLosses<B>> {
    let labels: IntTensor<I> = same(labels.clone().into_primitive())?;
    if let Some(logits) = plain::<B, I, 2>(logits) {
        let [loss, log_sum_exp, at_label, largest] =
            I::cross_entropy(&logits, &labels, smoothing).map(wrapped);
        return Some(RowLosses {
            loss,
            log_sum_exp,
            at_label,
            largest,
        });
    }
    let logits = tracked::<B, I, 2>(logits)?;
    let [loss, log_sum_exp, at_label, largest] =
        I::cross_entropy(&logits.primitive, &labels, smoothing);
    let constant = |values: &FloatTensor<I>| -> Tensor<B, 1> {
        wrapped(Autodiff::<I>::from_inner(values.clone()))
    };
    let (at_label, largest) = (constant(&at_label), constant(&largest));
    let lse = constant(&log_sum_exp);
    let state = State {
        logits: logits.primitive.clone(),
        labels,
        log_sum_exp,
        smoothing,
    };
    Some(RowLosses {
        loss: wrapped(record(CrossEntropy, [&logits], loss, state)),
        log_sum_exp: lse,
        at_label,
        largest,
    })
}

#[derive(Debug)]
struct CrossEntropy;

#[derive(Debug, Clone)]
struct State<I: Backend> {
    logits: FloatTensor<I>,
    labels: IntTensor<I>,
    log_sum_exp: FloatTensor<I>,
    smoothing: f64,
}

impl<I: Kernels> Backward<I, 1> for CrossEntropy {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 1>(ops, grads, |grad, state| {
            let State {
                logits,
                labels,
                log_sum_exp,
                smoothing,
            } = state;
            [I::cross_entropy_backward(
                &grad,
                logits,
                &labels,
                &log_sum_exp,
                smoothing,
            )]
        });
    }
}
