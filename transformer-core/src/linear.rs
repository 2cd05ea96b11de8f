//! Linear maps of every position.

use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::linear;

/// `x W + b` at every position.
///
/// Positions are laid out as the rows of one matrix: with a batch dimension, Burn would multiply
/// sentence by sentence and, going back, compute one gradient of `W` per sentence to add them up.
///
/// # Shapes
/// - x: `[batch, len, d_input]`
/// - weight: `[d_input, d_output]`, or `[d_output, d_input]` where it is stored transposed
/// - bias: `[d_output]`
/// - output: `[batch, len, d_output]`
pub(crate) fn at_every_position<B: Backend>(
    x: Tensor<B, 3>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    transposed: bool,
) -> Tensor<B, 3> {
    let [batch, len, d_input] = x.dims();
    let d_output = weight.dims()[if transposed { 0 } else { 1 }];
    let x = x.reshape([batch * len, d_input]);
    transformer_kernels::linear(&x, &weight, bias.as_ref(), transposed)
        .unwrap_or_else(|| {
            let weight = if transposed {
                weight.transpose()
            } else {
                weight
            };
            linear(x, weight, bias)
        })
        .reshape([batch, len, d_output])
}

/// A [`Linear`] of positions.
pub(crate) trait LinearAtEveryPosition<B: Backend> {
    /// `x W + b` at every position: `[batch, len, d_input]` to `[batch, len, d_output]`.
    fn at_every_position(&self, x: Tensor<B, 3>) -> Tensor<B, 3>;
}

impl<B: Backend> LinearAtEveryPosition<B> for Linear<B> {
    fn at_every_position(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(|bias| bias.val());
        at_every_position(x, self.weight.val(), bias, false)
    }
}
