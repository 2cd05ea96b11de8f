//! The activation between the two layers of a feed-forward network (§3.3).

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use burn::tensor::Tensor;
use burn::tensor::activation::{relu, sigmoid, silu};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use transformer_cpu::Activation;

use crate::autodiff::{first, operand, pass_back, prepare, record};
use crate::kernels::Kernels;
use crate::ops::dropout::dropout;
use crate::sizes::{check_probability, check_vector};

/// Applies an activation to every value.
fn activate<B: Backend, const D: usize>(x: Tensor<B, D>, activation: Activation) -> Tensor<B, D> {
    match activation {
        Activation::Relu => relu(x),
        Activation::Gelu => gelu(x),
        Activation::GeluTanh => gelu_tanh(x),
        Activation::Silu => silu(x),
    }
}

/// `x Φ(x)`, with the normal distribution function `Φ`. Burn's own `gelu` has the derivative of the `tanh`
/// approximation.
fn gelu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    prepare::<B>();
    let phi = ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    x * phi
}

/// `x σ(√(8/π) (x + 0.044715 x³))`, because `(1 + tanh(u)) / 2` is `σ(2u)`.
fn gelu_tanh<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let cube = x.clone() * x.clone() * x.clone();
    let gate = sigmoid((x.clone() + cube * 0.044_715) * (8.0 / PI).sqrt());
    x * gate
}

/// `dropout(activation(x + b))`, with [`dropout`]: between the two layers of the feed-forward network (§3.3).
///
/// Fused for ReLU with a bias.
///
/// # Shapes
/// - x and output: `[.., d_ff]`
/// - bias: `[d_ff]`
///
/// # Panics
/// When the bias does not have shape `[d_ff]` and the type of `x`, or `p` is not in [0, 1).
pub fn activation_dropout<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    bias: Option<Tensor<B, 1>>,
    activation: Activation,
    p: f64,
) -> Tensor<B, D> {
    check_probability(p);
    if let Some(bias) = &bias {
        check_vector(["bias", "x"], bias, x.dims()[D - 1], &x);
    }
    let fused = match (activation, &bias) {
        (Activation::Relu, Some(bias)) => first!(fused_relu::<B, D>(&x, bias, p)),
        _ => None,
    };
    fused.unwrap_or_else(|| composed(x, bias, activation, p))
}

/// The reference implementation.
fn composed<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    bias: Option<Tensor<B, 1>>,
    activation: Activation,
    p: f64,
) -> Tensor<B, D> {
    let x = match bias {
        // Burn's reshaping reads a size of zero as "keep the size of this dimension".
        Some(bias) if bias.dims() != [0] => x + bias.unsqueeze(),
        _ => x,
    };
    dropout(activate(x, activation), p)
}

fn fused_relu<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
    bias: &Tensor<B, 1>,
    p: f64,
) -> Option<Tensor<B, D>> {
    let (x, bias) = (operand::<B, I, D>(x)?, operand::<B, I, 1>(bias)?);
    let output = I::relu_dropout(&x.primitive, &bias.primitive, p);
    let state = (output.clone(), p);
    Some(record(ReluDropout, [&x, &bias], output, state))
}

#[derive(Debug)]
struct ReluDropout;

impl<I: Kernels> Backward<I, 2> for ReluDropout {
    type State = (FloatTensor<I>, f64);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, (output, p), [x_wanted, bias_wanted]| {
            let x = I::relu_dropout_backward(&grad, &output, p);
            let bias = bias_wanted.then(|| I::sum_rows(&x));
            [x_wanted.then_some(x), bias]
        });
    }
}

#[cfg(test)]
mod tests {
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{
        Input, Reference, assert_close, generator, on_each, outcome, tensor, values,
    };

    on_each!(kernel_is_the_composition);
    on_each!(nan_stays_nan);
    on_each!(backward_drops_the_same);

    fn kernel_is_the_composition<I: Kernels>() {
        type B<I> = Autodiff<I>;
        for (rows, d_ff) in [(1, 3), (9, 33), (30, 2048)] {
            let (x, bias) = (tensor::<B<I>, 3>(1, [2, rows, d_ff]), tensor(2, [d_ff]));
            let found = fused_relu::<B<I>, I, 3>(&x, &bias, 0.0).expect("a kernel");
            let found = outcome(found, &[Input::Three(x), Input::One(bias)]);
            let (x, bias) = (
                tensor::<Reference, 3>(1, [2, rows, d_ff]),
                tensor(2, [d_ff]),
            );
            let expected = composed(x.clone(), Some(bias.clone()), Activation::Relu, 0.0);
            let expected = outcome(expected, &[Input::Three(x), Input::One(bias)]);
            assert_close(&format!("2 x {rows} rows of {d_ff}"), &found, &expected);
        }
    }

    #[test]
    fn in_place_is_the_composition() {
        for activation in Activation::ALL {
            for scale in [1.0, 8.0] {
                let x = crate::testing::plain::<Reference, 1>(1, [5000]) * scale;
                let mut found: Vec<f32> = values(x.clone()).iter().map(|&x| x as f32).collect();
                transformer_cpu::rows::activate(&mut found, activation);
                let found = found.into_iter().map(f64::from).collect();
                let case = format!("{activation:?} up to {scale}");
                assert_close(&case, &[found], &[values(activate(x, activation))]);
            }
        }
    }

    /// NaN in the weights must reach the loss.
    fn nan_stays_nan<I: Kernels>() {
        let device = Default::default();
        let x = Tensor::<Autodiff<I>, 2>::from_data([[f32::NAN, -1.0, 2.0]], &device);
        let zeros = Tensor::<Autodiff<I>, 1>::zeros([3], &device).require_grad();
        let output = fused_relu::<_, I, 2>(&x.require_grad(), &zeros, 0.0).expect("a kernel");
        let output = values(output);
        assert!(output[0].is_nan(), "{output:?}");
        assert_eq!(output[1..], [0.0, 2.0]);
    }

    fn backward_drops_the_same<I: Kernels>() {
        let _held = generator();
        type B<I> = Autodiff<I>;
        let x = tensor::<B<I>, 2>(1, [300, 200]);
        let zeros = Tensor::<B<I>, 1>::zeros([200], &Default::default()).require_grad();
        let output = fused_relu::<B<I>, I, 2>(&x, &zeros, 0.25).expect("a kernel");
        let grads = output.clone().sum().backward();
        let (x_grad, bias_grad) = (x.grad(&grads).unwrap(), zeros.grad(&grads).unwrap());
        let sums = values(x_grad.clone().sum_dim(0));
        assert_close("bias", &[values(bias_grad)], &[sums]);
        let (x, output, x_grad) = (values(x), values(output), values(x_grad));
        let mut dropped = 0;
        for ((x, y), dx) in x.iter().zip(&output).zip(&x_grad) {
            let kept = *y > 0.0;
            dropped += usize::from(*x > 0.0 && !kept);
            let factor = if kept { 4.0 / 3.0 } else { 0.0 };
            assert!((y - x.max(0.0) * factor).abs() < 1e-6, "{y} of {x}");
            assert!((dx - factor).abs() < 1e-6, "{dx} where {y}");
        }
        // A quarter of 30 000 is 7500 ± 75.
        assert!(dropped.abs_diff(7500) < 450, "{dropped}");
    }
}
