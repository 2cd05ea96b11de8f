//! The position-wise feed-forward network (§3.3).

use std::f64::consts::FRAC_1_SQRT_2;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::{relu, silu};
use burn::tensor::backend::Backend;

use crate::config::{Activation, LayerConfig};
use crate::dropout::Dropout;
use crate::init::WeightInit;
use crate::linear::{LinearAtEveryPosition, at_every_position};

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
            dropout: Dropout::new(config.activation_dropout),
            activation: config.activation,
        }
    }

    /// Applies the network to every position.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let hidden = match (self.activation, &self.inner.bias) {
            (Activation::Relu, Some(bias)) => self.relu(x, bias.val()),
            (activation, _) => {
                let x = self.inner.at_every_position(x);
                self.dropout.forward(match activation {
                    Activation::Relu => relu(x),
                    Activation::Gelu => gelu(x),
                    Activation::Silu => silu(x),
                })
            }
        };
        self.outer.at_every_position(hidden)
    }

    /// `dropout(max(0, x W₁ + b₁))`, what follows the product in one pass where there is a kernel.
    fn relu(&self, x: Tensor<B, 3>, bias: Tensor<B, 1>) -> Tensor<B, 3> {
        let p = self.dropout.p::<B>(&x.device());
        let x = at_every_position(x, self.inner.weight.val(), None, false);
        transformer_kernels::add_bias_relu_dropout(&x, &bias, p)
            .unwrap_or_else(|| self.dropout.forward(relu(x + bias.unsqueeze())))
    }
}

/// `x Φ(x)`, where `Φ` is the normal distribution's. Burn's own `gelu` has the derivative of another
/// function, the approximation by `tanh`.
fn gelu<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    let phi = ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    x * phi
}
