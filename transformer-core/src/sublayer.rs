//! Residual connection, dropout and layer normalisation around a sub-layer (§3.1, §5.4), written
//! once.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::config::{LayerConfig, NormPlacement};
use crate::dropout::Dropout;
use crate::layer_norm::LayerNorm;

/// `LayerNorm(x + Dropout(f(x)))` where the norm stands after (§3.1),
/// `x + Dropout(f(LayerNorm(x)))` where it stands before.
#[derive(Module, Debug)]
pub struct Sublayer<B: Backend> {
    /// Layer normalisation over `d_model`.
    pub norm: LayerNorm<B>,
    dropout: Dropout,
    #[module(skip)]
    placement: NormPlacement,
}

impl<B: Backend> Sublayer<B> {
    /// A new one; layer normalisation starts as the identity.
    pub fn new(config: &LayerConfig, device: &B::Device) -> Self {
        Self {
            norm: LayerNorm::new(config, device),
            dropout: Dropout::new(config.dropout),
            placement: config.norm,
        }
    }

    /// Wraps `f`.
    ///
    /// # Shapes
    /// - x, and `f`'s input and output: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        f: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        match self.placement {
            NormPlacement::Post => {
                let y = f(x.clone());
                self.norm.forward(self.dropout.add_to(x, y))
            }
            NormPlacement::Pre => {
                let y = f(self.norm.forward(x.clone()));
                self.dropout.add_to(x, y)
            }
        }
    }
}
