//! Linear layers.

use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use transformer_kernels::{self as ops, ProductPrecision, WeightLayout};

/// `x W + b` at every position.
///
/// Burn's `Linear::forward` multiplies sentence by sentence and, in the backward pass, computes one gradient of `W` per
/// sentence; here all positions are the rows of one matrix. The precision applies where gradients are computed.
///
/// # Shapes
/// - x: `[batch, len, d_input]`
/// - output: `[batch, len, d_output]`
pub(crate) fn linear<B: Backend>(
    layer: &Linear<B>,
    x: Tensor<B, 3>,
    precision: ProductPrecision,
) -> Tensor<B, 3> {
    let (weight, bias) = (layer.weight.val(), layer.bias.as_ref());
    let bias = bias.map(|bias| bias.val());
    ops::linear(x, weight, bias, WeightLayout::InputByOutput, precision)
}
