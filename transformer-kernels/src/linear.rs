//! Linear maps of rows, and the non-linearity between two of them.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{first, pass_back, plain, record, tracked, wrapped};
use crate::kernels::Kernels;

/// `x W + b` for every row. With `transposed`, the weight is `Wᵀ`.
///
/// # Shapes
/// - x: `[rows, d_input]`
/// - weight: `[d_input, d_output]`, or `[d_output, d_input]` where it is transposed
/// - bias: `[d_output]`
/// - output: `[rows, d_output]`
pub fn linear<B: Backend>(
    x: &Tensor<B, 2>,
    weight: &Tensor<B, 2>,
    bias: Option<&Tensor<B, 1>>,
    transposed: bool,
) -> Option<Tensor<B, 2>> {
    first!(linear_on::<B>(x, weight, bias, transposed))
}

/// `dropout(max(0, x + b))`, where `p` may be zero.
///
/// # Shapes
/// - x and output: `[.., d_ff]`
/// - bias: `[d_ff]`
pub fn add_bias_relu_dropout<B: Backend, const D: usize>(
    x: &Tensor<B, D>,
    bias: &Tensor<B, 1>,
    p: f64,
) -> Option<Tensor<B, D>> {
    first!(relu_on::<B, D>(x, bias, p))
}

fn linear_on<B: Backend, I: Kernels>(
    x: &Tensor<B, 2>,
    weight: &Tensor<B, 2>,
    bias: Option<&Tensor<B, 1>>,
    transposed: bool,
) -> Option<Tensor<B, 2>> {
    if let (Some(x), Some(weight)) = (plain::<B, I, 2>(x), plain::<B, I, 2>(weight)) {
        let bias = match bias {
            Some(bias) => Some(plain::<B, I, 1>(bias)?),
            None => None,
        };
        let output = I::linear_forward(&x, &weight, bias.as_ref(), transposed);
        return Some(wrapped(output));
    }
    let (x, weight) = (tracked::<B, I, 2>(x)?, tracked::<B, I, 2>(weight)?);
    let bias = match bias {
        Some(bias) => Some(tracked::<B, I, 1>(bias)?),
        None => None,
    };
    let values = bias.as_ref().map(|bias| &bias.primitive);
    let output = I::linear_forward(&x.primitive, &weight.primitive, values, transposed);
    let state = State {
        x: x.primitive.clone(),
        weight: weight.primitive.clone(),
        transposed,
    };
    Some(wrapped(match &bias {
        Some(bias) => record(LinearWithBias, [&x, &weight, bias], output, state),
        None => record(Linear, [&x, &weight], output, state),
    }))
}

fn relu_on<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
    bias: &Tensor<B, 1>,
    p: f64,
) -> Option<Tensor<B, D>> {
    if let (Some(x), Some(bias)) = (plain::<B, I, D>(x), plain::<B, I, 1>(bias)) {
        return Some(wrapped(I::relu_dropout_forward(&x, &bias, p)));
    }
    let (x, bias) = (tracked::<B, I, D>(x)?, tracked::<B, I, 1>(bias)?);
    let output = I::relu_dropout_forward(&x.primitive, &bias.primitive, p);
    let state = (output.clone(), p);
    Some(wrapped(record(Relu, [&x, &bias], output, state)))
}

#[derive(Debug)]
struct Linear;

#[derive(Debug)]
struct LinearWithBias;

#[derive(Debug, Clone)]
struct State<I: Backend> {
    x: FloatTensor<I>,
    weight: FloatTensor<I>,
    transposed: bool,
}

impl<I: Kernels> State<I> {
    fn backward(&self, grad: &FloatTensor<I>) -> [FloatTensor<I>; 2] {
        I::linear_backward(grad, &self.x, &self.weight, self.transposed)
    }
}

impl<I: Kernels> Backward<I, 2> for Linear {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, state| state.backward(&grad));
    }
}

impl<I: Kernels> Backward<I, 3> for LinearWithBias {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 3>(ops, grads, |grad, state| {
            let [x, weight] = state.backward(&grad);
            [x, weight, I::sum_rows(&grad)]
        });
    }
}

#[derive(Debug)]
struct Relu;

impl<I: Kernels> Backward<I, 2> for Relu {
    type State = (FloatTensor<I>, f64);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, (output, p)| {
            let x = I::relu_dropout_backward(&grad, &output, p);
            let bias = I::sum_rows(&x);
            [x, bias]
        });
    }
}
