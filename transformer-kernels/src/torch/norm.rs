//! The backward pass of layer normalization.

use tch::{Kind, Tensor};

use super::sum_rows;

/// Operands of the backward pass, as rows of d_model values.
pub struct Rows<'a> {
    grad: Tensor,
    normed: Tensor,
    deviation: Tensor,
    gamma: &'a Tensor,
    shape: Vec<i64>,
}

impl<'a> Rows<'a> {
    /// From the output's gradient, and the means and reciprocal deviations of libtorch's forward pass.
    pub fn new(
        grad: &Tensor,
        x: &Tensor,
        gamma: &'a Tensor,
        [mean, deviation]: [&Tensor; 2],
    ) -> Self {
        let rows = |tensor: &Tensor| tensor.reshape([-1, gamma.size()[0]]);
        let column = |tensor: &Tensor| tensor.reshape([-1, 1]);
        let deviation = column(deviation);
        Self {
            grad: rows(grad),
            normed: (rows(x) - column(mean)) * &deviation,
            deviation,
            gamma,
            shape: x.size(),
        }
    }

    /// The gradient of the rows.
    pub fn x_gradient(&self) -> Tensor {
        let grad = &self.grad * self.gamma;
        let mean_of = |tensor: &Tensor| tensor.mean_dim([1i64].as_slice(), true, Kind::Float);
        let along = mean_of(&(&grad * &self.normed));
        let x_grad = (&grad - mean_of(&grad) - &self.normed * along) * &self.deviation;
        x_grad.reshape(self.shape.as_slice())
    }

    /// The gradients of gamma and beta.
    pub fn parameter_gradients(&self) -> [Tensor; 2] {
        let d_model = self.gamma.size()[0];
        let of_gamma = &self.grad * &self.normed;
        [sum_rows(&of_gamma, d_model), sum_rows(&self.grad, d_model)]
    }
}
