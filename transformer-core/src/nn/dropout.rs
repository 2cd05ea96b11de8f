//! Dropout (§5.4).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use transformer_kernels as ops;

/// Dropout (§5.4): where gradients are computed, sets each element to zero with probability `p` and divides the others
/// by `1 - p`; the identity elsewhere.
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
        assert!(
            (0.0..1.0).contains(&p),
            "dropout probability {p} is not in [0, 1)"
        );
        Self { p }
    }

    /// The probability with which elements of `x` are dropped; zero where no gradients are computed. For operations
    /// that apply dropout themselves, such as [`ops::attention`].
    pub fn probability<B: Backend, const D: usize>(&self, x: &Tensor<B, D>) -> f64 {
        if B::ad_enabled(&x.device()) {
            self.p
        } else {
            0.0
        }
    }

    /// Applies dropout.
    ///
    /// # Shapes
    /// - x and output: any shape, the same for both
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let p = self.probability(&x);
        ops::dropout(x, p)
    }

    /// `residual + dropout(x)`.
    ///
    /// # Shapes
    /// - residual, x and output: any shape, the same for all
    ///
    /// # Panics
    /// When the shapes differ.
    pub fn add_to<B: Backend, const D: usize>(
        &self,
        residual: Tensor<B, D>,
        x: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let p = self.probability(&x);
        ops::add_dropout(residual, x, p)
    }
}
