//! The position-wise feed-forward network (§3.3).

use burn::config::Config;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::dropout::Dropout;
use crate::init::WeightInit;
use crate::linear::linear;
use crate::ops::{self, Activation, ProductPrecision, WeightLayout};
use crate::validation::assert_sizes;

/// The configuration of [`PositionwiseFeedForward`].
#[derive(Config, Debug)]
pub struct FeedForwardConfig {
    /// Width of input and output.
    pub d_model: usize,
    /// Inner width.
    pub d_ff: usize,
    /// The non-linearity; the paper's is ReLU.
    #[config(default = "Activation::Relu")]
    pub activation: Activation,
    /// Dropout after the non-linearity; the paper has none.
    #[config(default = 0.0)]
    pub dropout: f64,
}

impl FeedForwardConfig {
    /// A network with weights drawn from the backend's generator.
    ///
    /// # Panics
    /// When a size is zero, or the dropout is not in [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionwiseFeedForward<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A network with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> PositionwiseFeedForward<B> {
        assert_sizes(&[("d_model", self.d_model), ("d_ff", self.d_ff)]);
        PositionwiseFeedForward {
            inner: init.linear(self.d_model, self.d_ff, true, device),
            outer: init.linear(self.d_ff, self.d_model, true, device),
            dropout: Dropout::new(self.dropout),
            activation: self.activation,
            precision: ProductPrecision::F32,
        }
    }
}

/// `FFN(x) = max(0, x W₁ + b₁) W₂ + b₂` (§3.3, equation 2), each position by itself.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::FeedForwardConfig;
///
/// let device = Default::default();
/// let network = FeedForwardConfig::new(32, 64).init::<NdArray>(&device);
/// let y = network.forward(Tensor::zeros([2, 5, 32], &device));
/// assert_eq!(y.dims(), [2, 5, 32]);
/// ```
#[derive(Module, Debug)]
pub struct PositionwiseFeedForward<B: Backend> {
    /// `W₁` and `b₁`: `[d_model, d_ff]`.
    pub inner: Linear<B>,
    /// `W₂` and `b₂`: `[d_ff, d_model]`.
    pub outer: Linear<B>,
    dropout: Dropout,
    #[module(skip)]
    activation: Activation,
    /// The precision of both products, in training.
    #[module(skip)]
    pub(crate) precision: ProductPrecision,
}

impl<B: Backend> PositionwiseFeedForward<B> {
    /// Applies the network to every position.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When `x` is not `d_model` wide.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let p = self.dropout.probability(&x);
        let (weight, layout) = (self.inner.weight.val(), WeightLayout::InputByOutput);
        let product = ops::linear(x, weight, None, layout, self.precision);
        let bias = self.inner.bias.as_ref().map(|bias| bias.val());
        let hidden = ops::activation_dropout(product, bias, self.activation, p);
        linear(&self.outer, hidden, self.precision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    #[should_panic(expected = "`d_ff` is 0; it must be at least 1")]
    fn a_size_of_zero_is_named() {
        FeedForwardConfig::new(8, 0).init::<NdArray>(&Default::default());
    }
}
