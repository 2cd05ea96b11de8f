//! Dropout (§5.4).

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};

/// Where gradients are taken, sets each entry to zero with probability `p` and divides the others by
/// `1 - p`; elsewhere does nothing.
#[derive(Module, Clone, Debug)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// Dropout with probability `p` in [0, 1).
    pub fn new(p: f64) -> Self {
        Self { p }
    }

    /// The probability with which entries of such a tensor are dropped: zero where no gradients are
    /// taken.
    pub(crate) fn p<B: Backend>(&self, device: &B::Device) -> f64 {
        if B::ad_enabled(device) { self.p } else { 0.0 }
    }

    /// Drops entries of a tensor of any shape.
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if self.p::<B>(&x.device()) == 0.0 {
            return x;
        }
        if let Some(dropped) = transformer_kernels::dropout(&x, self.p) {
            return dropped;
        }
        let keep = 1.0 - self.p;
        // Dividing the mask, which no gradient flows through, saves a pass in either direction.
        let mask = x.random_like(Distribution::Bernoulli(keep)) / keep;
        x * mask
    }

    /// `residual + dropout(x)`, the shapes being the same.
    pub(crate) fn add_to<B: Backend, const D: usize>(
        &self,
        residual: Tensor<B, D>,
        x: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let p = self.p::<B>(&x.device());
        transformer_kernels::dropout_and_add(&residual, &x, p)
            .unwrap_or_else(|| residual + self.forward(x))
    }
}
