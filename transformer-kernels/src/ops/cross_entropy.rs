//! Cross entropy against smoothed labels. Its forward pass creates no further tensor of the logits' size.

use burn::tensor::activation;
use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{constant, first, operand, pass_back, plain, record, same, wrapped};
use crate::kernels::Kernels;
use crate::sizes::described;

/// The cross entropy of each row of logits `x` with the label `y`, and its terms: `[rows]` each.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RowLosses<B: Backend> {
    /// The loss `lse(x) - (1 - ε) x_y - ε mean(x)`, the only one with a gradient.
    pub loss: Tensor<B, 1>,
    /// `lse(x)`, the log-sum-exp of the row.
    pub log_sum_exp: Tensor<B, 1>,
    /// `x_y`
    pub at_label: Tensor<B, 1>,
    /// The largest value of `x`.
    pub largest: Tensor<B, 1>,
}

/// Cross entropy of each row against its label, smoothed by ε (§5.4).
///
/// # Shapes
/// - logits: `[rows, vocab_size]`
/// - labels: `[rows]`, each below `vocab_size`
/// - output: see [`RowLosses`]
///
/// # Panics
/// When the numbers of labels and rows differ. Labels are not checked here: if one is not below `vocab_size`, the
/// backend may panic.
pub fn cross_entropy<B: Backend>(
    logits: Tensor<B, 2>,
    labels: Tensor<B, 1, Int>,
    smoothing: f64,
) -> RowLosses<B> {
    let ([rows, _], [count]) = (logits.dims(), labels.dims());
    assert!(
        rows == count,
        "labels [{count}] for {}",
        described("logits", &logits)
    );
    first!(fused::<B>(&logits, &labels, smoothing))
        .unwrap_or_else(|| composed(logits, labels, smoothing))
}

/// The reference implementation.
fn composed<B: Backend>(
    logits: Tensor<B, 2>,
    labels: Tensor<B, 1, Int>,
    smoothing: f64,
) -> RowLosses<B> {
    let [rows, _] = logits.dims();
    // The largest logit only keeps the exponentials finite; no gradient flows through it.
    let largest = logits.clone().detach().max_dim(1);
    let at_label: Tensor<B, 1> = logits
        .clone()
        .gather(1, labels.reshape([rows, 1]))
        .reshape([rows]);
    let mean: Tensor<B, 1> = logits.clone().mean_dim(1).reshape([rows]);
    let sum_exp: Tensor<B, 1> = (logits - largest.clone()).exp().sum_dim(1).reshape([rows]);
    let largest: Tensor<B, 1> = largest.reshape([rows]);
    let lse = sum_exp.log() + largest.clone();
    let loss = lse.clone() - at_label.clone() * (1.0 - smoothing) - mean * smoothing;
    RowLosses {
        loss,
        log_sum_exp: lse.detach(),
        at_label: at_label.detach(),
        largest,
    }
}

/// The log-softmax over the last dimension (§3.4). Fused if no gradients are computed.
///
/// # Shapes
/// - x and output: `[.., width]`
pub fn log_softmax<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    first!(fused_log_softmax::<B, D>(&x)).unwrap_or_else(|| activation::log_softmax(x, D - 1))
}

fn fused_log_softmax<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
) -> Option<Tensor<B, D>> {
    let x = plain::<B, I, D>(x)?;
    Some(wrapped(I::log_softmax_forward(&x)))
}

fn fused<B: Backend, I: Kernels>(
    logits: &Tensor<B, 2>,
    labels: &Tensor<B, 1, Int>,
    smoothing: f64,
) -> Option<RowLosses<B>> {
    let labels: IntTensor<I> = same(labels.clone().into_primitive())?;
    let logits = operand::<B, I, 2>(logits)?;
    let [loss, log_sum_exp, at_label, largest] =
        I::cross_entropy(&logits.primitive, &labels, smoothing);
    let state = State {
        logits: logits.primitive.clone(),
        labels,
        log_sum_exp: log_sum_exp.clone(),
        smoothing,
    };
    Some(RowLosses {
        loss: record(CrossEntropy, [&logits], loss, state),
        log_sum_exp: constant::<B, I, 1>(log_sum_exp),
        at_label: constant::<B, I, 1>(at_label),
        largest: constant::<B, I, 1>(largest),
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
        pass_back::<I, _, 1>(ops, grads, |grad, state, _| {
            let State {
                logits,
                labels,
                log_sum_exp,
                smoothing,
            } = state;
            let logits = I::cross_entropy_backward(&grad, logits, &labels, &log_sum_exp, smoothing);
            [Some(logits)]
        });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::backend::AutodiffBackend;
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{Input, Reference, assert_close, on_each, outcome, plain as numbers};
    use crate::testing::{tensor, values};

    on_each!(cross_entropy_kernel_is_the_composition);
    on_each!(log_softmax_kernel_is_the_composition);

    fn cross_entropy_kernel_is_the_composition<I: Kernels>() {
        type Loss<B> = fn(Tensor<B, 2>, Tensor<B, 1, Int>) -> RowLosses<B>;
        fn run<B: AutodiffBackend>(rows: usize, vocab_size: usize, loss: Loss<B>) -> Vec<Vec<f64>> {
            let logits = tensor::<B, 2>(1, [rows, vocab_size]) * 6.0;
            let logits = logits.detach().require_grad();
            let labels: Vec<i64> = (0..rows)
                .map(|row| (row * 31 % vocab_size) as i64)
                .collect();
            let labels = Tensor::<B, 1, Int>::from_data(labels.as_slice(), &Default::default());
            let rows = loss(logits.clone(), labels);
            let mut all = outcome(rows.loss, &[Input::Two(logits)]);
            all.extend([rows.log_sum_exp, rows.at_label, rows.largest].map(values));
            all
        }
        for (rows, vocab_size) in [(1, 2), (9, 33), (20, 1000)] {
            let kernel: Loss<Autodiff<I>> =
                |logits, labels| fused::<_, I>(&logits, &labels, 0.1).expect("a kernel");
            let composition: Loss<Reference> = |logits, labels| composed(logits, labels, 0.1);
            assert_close(
                &format!("{rows} rows of {vocab_size}"),
                &run(rows, vocab_size, kernel),
                &run(rows, vocab_size, composition),
            );
        }
    }

    fn log_softmax_kernel_is_the_composition<I: Kernels>() {
        for shape in [[1, 1, 1], [2, 3, 33], [4, 5, 1000]] {
            let x = numbers::<I, 3>(1, shape) * 20.0;
            let exact = tensor::<Reference, 3>(1, shape).inner() * 20.0;
            let found = fused_log_softmax::<I, I, 3>(&x).expect("a kernel");
            assert_close(
                &format!("{shape:?}"),
                &[values(found)],
                &[values(activation::log_softmax(exact, 2))],
            );
        }
    }
}
