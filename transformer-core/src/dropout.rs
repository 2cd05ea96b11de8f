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

    /// Drops entries of a tensor of any shape.
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if self.p == 0.0 || !B::ad_enabled(&x.device()) {
            return x;
        }
        let keep = 1.0 - self.p;
        // Dividing the mask, which no gradient flows through, saves a pass in either direction.
        let mask = x.random_like(Distribution::Bernoulli(keep)) / keep;
        x * mask
    }
}
