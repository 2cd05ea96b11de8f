//! The connection around each sub-layer: residual, dropout, layer normalization (§3.1, §5.4).

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::nn::dropout::Dropout;
use crate::nn::error::{ConfigError, check_dropout};
use crate::nn::norm::{Norm, NormConfig};

/// Placement of layer normalization in a sub-layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// `LayerNorm(x + Sublayer(x))`, as in the paper (§3.1).
    Post,
    /// `x + Sublayer(LayerNorm(x))`, which trains without warm-up.
    Pre,
}

/// The configuration of [`Sublayer`].
#[derive(Config, Debug, PartialEq)]
pub struct SublayerConfig {
    /// The layer normalization.
    pub norm: NormConfig,
    /// Its placement.
    #[config(default = "NormPlacement::Post")]
    pub placement: NormPlacement,
    /// Dropout on the sub-layer's output (§5.4).
    #[config(default = 0.1)]
    pub dropout: f64,
}

impl SublayerConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid value or contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.norm.validate()?;
        check_dropout("dropout", self.dropout)
    }

    /// A new connection, whose layer normalization has scale 1 and shift 0.
    ///
    /// # Panics
    /// When `d_model` is zero, or the dropout is not in [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Sublayer<B> {
        Sublayer {
            norm: self.norm.init(device),
            dropout: Dropout::new(self.dropout),
            placement: self.placement,
        }
    }
}

/// The residual connection around a sub-layer `f`: `Norm(x + Dropout(f(x)))` with post-norm (§3.1),
/// `x + Dropout(f(Norm(x)))` with pre-norm. The dropout is described in §5.4.
#[derive(Module, Debug)]
pub struct Sublayer<B: Backend> {
    /// Layer normalization over `d_model`.
    pub norm: Norm<B>,
    dropout: Dropout,
    #[module(skip)]
    placement: NormPlacement,
}

impl<B: Backend> Sublayer<B> {
    /// Applies `f` with the connection around it.
    ///
    /// # Shapes
    /// - x, and `f`'s input and output: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When `x` or the output of `f` does not have these shapes, or `f` panics.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        f: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let (output, ()) = self.forward_with(x, |x| (f(x), ()));
        output
    }

    /// [`forward`](Self::forward) for a function with a second result, such as attention weights.
    ///
    /// # Shapes
    /// As [`forward`](Self::forward).
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_with<T>(
        &self,
        x: Tensor<B, 3>,
        f: impl FnOnce(Tensor<B, 3>) -> (Tensor<B, 3>, T),
    ) -> (Tensor<B, 3>, T) {
        match self.placement {
            NormPlacement::Post => {
                let (y, beside) = f(x.clone());
                (self.norm.forward(self.dropout.add_to(x, y)), beside)
            }
            NormPlacement::Pre => {
                let (y, beside) = f(self.norm.forward(x.clone()));
                (self.dropout.add_to(x, y), beside)
            }
        }
    }
}
