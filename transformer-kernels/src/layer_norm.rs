//! Layer normalisation by the variance.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{first, pass_back, plain, record, tracked, wrapped};
use crate::kernels::Kernels;

/// `γ (x - m) / √(v + ε) + β` over the last dimension.
///
/// # Shapes
/// - x and output: `[.., d_model]`
/// - gamma, beta: `[d_model]`
pub fn layer_norm<B: Backend, const D: usize>(
    x: &Tensor<B, D>,
    gamma: &Tensor<B, 1>,
    beta: &Tensor<B, 1>,
    epsilon: f64,
) -> Option<Tensor<B, D>> {
    first!(on::<B, D>(x, gamma, beta, epsilon))
}

fn on<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
    gamma: &Tensor<B, 1>,
    beta: &Tensor<B, 1>,
    epsilon: f64,
) -> Option<Tensor<B, D>> {
    if let (Some(x), Some(gamma), Some(beta)) = (
        plain::<B, I, D>(x),
        plain::<B, I, 1>(gamma),
        plain::<B, I, 1>(beta),
    ) {
        let [output, ..] = I::layer_norm_forward(&x, &gamma, &beta, epsilon);
        return Some(wrapped(output));
    }
    let (x, gamma, beta) = (
        tracked::<B, I, D>(x)?,
        tracked::<B, I, 1>(gamma)?,
        tracked::<B, I, 1>(beta)?,
    );
    let [output, mean, deviation] =
        I::layer_norm_forward(&x.primitive, &gamma.primitive, &beta.primitive, epsilon);
    let state = State {
        x: x.primitive.clone(),
        gamma: gamma.primitive.clone(),
        statistics: [mean, deviation],
    };
    Some(wrapped(record(
        LayerNorm,
        [&x, &gamma, &beta],
        output,
        state,
    )))
}

#[derive(Debug)]
struct LayerNorm;

#[derive(Debug, Clone)]
struct State<I: Backend> {
    x: FloatTensor<I>,
    gamma: FloatTensor<I>,
    statistics: [FloatTensor<I>; 2],
}

impl<I: Kernels> Backward<I, 3> for LayerNorm {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 3>(ops, grads, |grad, state| {
            I::layer_norm_backward(&grad, &state.x, &state.gamma, &state.statistics)
        });
    }
}
