//! The position-wise feed-forward network (§3.3).

use burn::module::Module;
use burn::nn::{Dropout, Linear};
use burn::tensor::Tensor;
use burn::tensor::activation::{gelu, relu, silu};
use burn::tensor::backend::Backend;

use crate::config::{Activation, LayerConfig};
use crate::init::{WeightInit, dropout};

/// `FFN(x) = max(0, x W₁ + b₁) W₂ + b₂` (§3.3, equation 2), each position by itself.
#[derive(Module, Debug)]
pub struct PositionwiseFeedForward<B: Backend> {
    /// `W₁` and `b₁`: `[d_model, d_ff]`.
    pub inner: Linear<B>,
    /// `W₂` and `b₂`: `[d_ff, d_model]`.
    pub outer: Linear<B>,
    dropout: Dropout,
    #[module(skip)]
    activation: Activation,
}

impl<B: Backend> PositionwiseFeedForward<B> {
    /// A new one, drawn from `init`.
    pub fn new(config: &LayerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        Self {
            inner: init.linear(config.d_model, config.d_ff, true, device),
            outer: init.linear(config.d_ff, config.d_model, true, device),
            dropout: dropout(config.activation_dropout),
            activation: config.activation,
        }
    }

    /// Applies the network to every position.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = self.inner.forward(x);
        let x = match self.activation {
            Activation::Relu => relu(x),
            Activation::Gelu => gelu(x),
            Activation::Silu => silu(x),
        };
        self.outer.forward(self.dropout.forward(x))
    }
}
