//! Layer normalization.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use transformer_cpu::NormParents;

use crate::autodiff::{first, operand, pass_back, record};
use crate::kernels::Kernels;
use crate::sizes::check_vector;

/// `γ (x - m) / √(v + ε) + β` over the last dimension, with its mean `m` and variance `v` (§3.1; Ba et al., 2016).
///
/// # Shapes
/// - x and output: `[.., d_model]`
/// - gamma, beta: `[d_model]`
///
/// # Panics
/// When gamma or beta does not have shape `[d_model]` and the type of `x`.
pub fn layer_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    gamma: Tensor<B, 1>,
    beta: Tensor<B, 1>,
    epsilon: f64,
) -> Tensor<B, D> {
    for (name, vector) in [("gamma", &gamma), ("beta", &beta)] {
        check_vector([name, "x"], vector, x.dims()[D - 1], &x);
    }
    first!(fused::<B, D>(&x, &gamma, &beta, epsilon))
        .unwrap_or_else(|| composed(x, gamma, beta, epsilon))
}

/// The reference implementation.
fn composed<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    gamma: Tensor<B, 1>,
    beta: Tensor<B, 1>,
    epsilon: f64,
) -> Tensor<B, D> {
    let [gamma, beta] = [gamma, beta].map(|tensor| tensor.into_primitive().tensor());
    let x = x.into_primitive().tensor();
    let normed = B::layer_norm(x, gamma, Some(beta), epsilon);
    Tensor::from_primitive(TensorPrimitive::Float(normed))
}

fn fused<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
    gamma: &Tensor<B, 1>,
    beta: &Tensor<B, 1>,
    epsilon: f64,
) -> Option<Tensor<B, D>> {
    let x = operand::<B, I, D>(x)?;
    let (gamma, beta) = (operand::<B, I, 1>(gamma)?, operand::<B, I, 1>(beta)?);
    let [output, mean, deviation] =
        I::layer_norm_forward(&x.primitive, &gamma.primitive, &beta.primitive, epsilon);
    let state = State {
        x: x.primitive.clone(),
        gamma: gamma.primitive.clone(),
        statistics: [mean, deviation],
    };
    Some(record(LayerNorm, [&x, &gamma, &beta], output, state))
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
        pass_back::<I, _, 3>(ops, grads, |grad, state, [x, gamma, beta]| {
            let wanted = NormParents {
                x,
                parameters: gamma || beta,
            };
            let State {
                x,
                gamma,
                statistics,
            } = state;
            let (x, parameters) = I::layer_norm_backward(&grad, &x, &gamma, &statistics, wanted);
            let [gamma, beta] = match parameters {
                Some(parameters) => parameters.map(Some),
                None => [None, None],
            };
            [x, gamma, beta]
        });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::backend::AutodiffBackend;
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{Input, Reference, assert_close, on_each, outcome, tensor};

    on_each!(kernel_is_the_composition);

    fn kernel_is_the_composition<I: Kernels>() {
        type Norm<B> = fn(&Tensor<B, 3>, &Tensor<B, 1>, &Tensor<B, 1>) -> Tensor<B, 3>;
        fn run<B: AutodiffBackend>(rows: usize, d_model: usize, norm: Norm<B>) -> Vec<Vec<f64>> {
            let x = tensor::<B, 3>(1, [rows, 3, d_model]) * 3.0 + 5.0;
            let x = x.detach().require_grad();
            let (gamma, beta) = (tensor::<B, 1>(2, [d_model]), tensor::<B, 1>(3, [d_model]));
            let output = norm(&x, &gamma, &beta);
            outcome(
                output,
                &[Input::Three(x), Input::One(gamma), Input::One(beta)],
            )
        }
        for (rows, d_model) in [(1, 4), (5, 37), (40, 512)] {
            let kernel: Norm<Autodiff<I>> =
                |x, gamma, beta| fused::<_, I, 3>(x, gamma, beta, 1e-5).expect("a kernel");
            // Written out: Burn's own layer norm is tested elsewhere, against PyTorch.
            let formula: Norm<Reference> = |x, gamma, beta| {
                let centred = x.clone() - x.clone().mean_dim(2);
                let variance = centred.clone().powi_scalar(2).mean_dim(2);
                centred / (variance + 1e-5).sqrt() * gamma.clone().unsqueeze()
                    + beta.clone().unsqueeze()
            };
            let composition: Norm<Reference> =
                |x, gamma, beta| composed(x.clone(), gamma.clone(), beta.clone(), 1e-5);
            let case = format!("{rows} x 3 rows of {d_model}");
            let expected = run(rows, d_model, formula);
            assert_close(&case, &run(rows, d_model, kernel), &expected);
            assert_close(&case, &run(rows, d_model, composition), &expected);
        }
    }
}
