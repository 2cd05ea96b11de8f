//! The position-wise feed-forward network (§3.3), and its gated variants (Shazeer, 2020).

use burn::config::Config;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::nn::dropout::Dropout;
use crate::nn::error::{ConfigError, assert_sizes, check_dropout, check_sizes};
use crate::nn::init::WeightInit;
use crate::nn::linear::linear;
use crate::nn::parameters::{Parameter, linear_parameters, within};
use transformer_kernels::{self as ops, Activation, ProductPrecision, WeightLayout};

/// The configuration of [`FeedForward`].
#[derive(Config, Debug, PartialEq)]
pub struct FeedForwardConfig {
    /// Width of input and output.
    pub d_model: usize,
    /// Inner width.
    pub d_ff: usize,
    /// The non-linearity; the paper's is ReLU.
    #[config(default = "Activation::Relu")]
    pub activation: Activation,
    /// Whether the network is gated; the paper's is not.
    #[config(default = false)]
    pub gated: bool,
    /// Whether the linear layers have biases, as in the paper.
    #[config(default = true)]
    pub bias: bool,
    /// Dropout after the non-linearity; none in the paper.
    #[config(default = 0.0)]
    pub dropout: f64,
}

impl FeedForwardConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid value or contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_sizes(&[("d_model", self.d_model), ("d_ff", self.d_ff)])?;
        check_dropout("activation_dropout", self.dropout)
    }

    /// The parameters of a [`FeedForward`].
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let into = || linear_parameters(self.d_model, self.d_ff, self.bias);
        let mut parameters = within("inner", into());
        if self.gated {
            parameters.extend(within("gate", into()));
        }
        let outer = linear_parameters(self.d_ff, self.d_model, self.bias);
        parameters.extend(within("outer", outer));
        parameters
    }

    /// A network with weights drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When a size is zero, or the dropout is not in [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> FeedForward<B> {
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
    ) -> FeedForward<B> {
        let (d_model, d_ff, bias) = (self.d_model, self.d_ff, self.bias);
        assert_sizes(&[("d_model", d_model), ("d_ff", d_ff)]);
        FeedForward {
            inner: init.linear(d_model, d_ff, bias, device),
            gate: self.gated.then(|| init.linear(d_model, d_ff, bias, device)),
            outer: init.linear(d_ff, d_model, bias, device),
            dropout: Dropout::new(self.dropout),
            activation: self.activation,
            precision: ProductPrecision::F32,
        }
    }
}

/// `FFN(x) = max(0, x W₁ + b₁) W₂ + b₂` (§3.3, equation 2), applied to each position separately.
///
/// With a gate, `FFN(x) = (f(x W_g + b_g) ⊙ (x W₁ + b₁)) W₂ + b₂`, where `f` is the non-linearity and `⊙` the
/// element-wise product: ReGLU with ReLU, GEGLU with GELU, SwiGLU with SiLU (Shazeer, 2020, equation 6, where `W_g` is
/// `W` and `W₁` is `V`).
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::nn::FeedForwardConfig;
///
/// let device = Default::default();
/// let network = FeedForwardConfig::new(32, 64).init::<NdArray>(&device);
/// let y = network.forward(Tensor::zeros([2, 5, 32], &device));
/// assert_eq!(y.dims(), [2, 5, 32]);
/// ```
#[derive(Module, Debug)]
pub struct FeedForward<B: Backend> {
    /// `W₁` and `b₁`: `[d_model, d_ff]`.
    pub inner: Linear<B>,
    /// `W_g` and `b_g`: `[d_model, d_ff]`; `None` in a network without a gate.
    pub gate: Option<Linear<B>>,
    /// `W₂` and `b₂`: `[d_ff, d_model]`.
    pub outer: Linear<B>,
    dropout: Dropout,
    #[module(skip)]
    activation: Activation,
    /// The precision of matrix multiplications in training.
    #[module(skip)]
    pub(crate) precision: ProductPrecision,
}

impl<B: Backend> FeedForward<B> {
    /// Applies the network to every position.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When `x` is not `d_model` wide.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let hidden = match &self.gate {
            None => self.activated(&self.inner, x),
            Some(gate) => self.activated(gate, x.clone()) * linear(&self.inner, x, self.precision),
        };
        linear(&self.outer, hidden, self.precision)
    }

    /// A linear layer, the non-linearity, and dropout.
    fn activated(&self, map: &Linear<B>, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let p = self.dropout.probability(&x);
        let (weight, layout) = (map.weight.val(), WeightLayout::InputByOutput);
        let product = ops::linear(x, weight, None, layout, self.precision);
        let bias = map.bias.as_ref().map(|bias| bias.val());
        ops::activation_dropout(product, bias, self.activation, p)
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
