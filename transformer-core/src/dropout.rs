//! Dropout (§5.4).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::ops;

/// Where gradients are taken, sets each entry to zero with probability `p` and divides the others by
/// `1 - p`; elsewhere it is the identity.
#[derive(Module, Clone, Debug)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// Dropout with probability `p`.
    ///
    /// # Panics
    /// When `p` is not in [0, 1).
    pub fn new(p: f64) -> Self {
        assert!((0.0..1.0).contains(&p), "a dropout of {p} is not in [0, 1)");
        Self { p }
    }

    /// The probability with which entries of a tensor on this device are dropped: zero where no
    /// gradients are taken.
    pub(crate) fn p<B: Backend>(&self, device: &B::Device) -> f64 {
        if B::ad_enabled(device) { self.p } else { 0.0 }
    }

    /// Drops entries of a tensor of any shape.
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let p = self.p::<B>(&x.device());
        ops::dropout(x, p)
    }

    /// `residual + dropout(x)`, both of one shape.
    pub fn add_to<B: Backend, const D: usize>(
        &self,
        residual: Tensor<B, D>,
        x: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let p = self.p::<B>(&x.device());
        ops::add_dropout(residual, x, p)
    }
}
