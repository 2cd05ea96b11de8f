//! Adam's step.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::autodiff::{first, same, wrapped};
use crate::kernels::Kernels;

/// The numbers of a step, which all parameters share.
#[derive(Debug, Clone, Copy)]
pub struct AdamStep {
    /// Share of the first moment that stays.
    pub beta_1: f32,
    /// Share of the second moment that stays.
    pub beta_2: f32,
    /// Added to the root of the second moment, once that is corrected.
    pub epsilon: f32,
    /// Learning rate.
    pub learning_rate: f64,
    /// Steps of the parameter, this one among them.
    pub time: usize,
}

impl AdamStep {
    /// `(s, e)` of the step `parameter -= s · moment_1 / (√moment_2 + e)`, the moments' bias corrected.
    pub(crate) fn size_and_epsilon(&self) -> (f32, f32) {
        let root = (1.0 - self.beta_2.powi(self.time as i32)).sqrt();
        let size = self.learning_rate as f32 * root / (1.0 - self.beta_1.powi(self.time as i32));
        (size, self.epsilon * root)
    }
}

/// Means of the gradient and of its square, which decay.
#[derive(Debug, Clone)]
pub struct Moments<B: Backend, const D: usize> {
    /// Of the gradient.
    pub first: Tensor<B, D>,
    /// Of its square.
    pub second: Tensor<B, D>,
}

/// One step of Adam for one parameter: in place, where nobody else holds the tensors.
///
/// The tensors are of a backend without gradients. Where it has no kernel they are given back.
///
/// # Errors
/// What it was given, where there is no kernel.
#[allow(clippy::type_complexity, reason = "what it was given")]
pub fn adam<B: Backend, const D: usize>(
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: Moments<B, D>,
    step: &AdamStep,
) -> Result<(Tensor<B, D>, Moments<B, D>), (Tensor<B, D>, Tensor<B, D>, Moments<B, D>)> {
    let mut given = Some((parameter, grad, moments));
    let answer: Option<(Tensor<B, D>, Moments<B, D>)> = first!(on::<B, D>(&mut given, step));
    answer.ok_or_else(|| given.expect("nothing took it"))
}

type Given<B, const D: usize> = Option<(Tensor<B, D>, Tensor<B, D>, Moments<B, D>)>;

fn on<B: Backend, I: Kernels, const D: usize>(
    given: &mut Given<B, D>,
    step: &AdamStep,
) -> Option<(Tensor<B, D>, Moments<B, D>)> {
    let (parameter, ..) = given.as_ref()?;
    let primitive = parameter.clone().into_primitive().tensor();
    if !I::takes(&same(primitive)?) {
        return None;
    }
    let (parameter, grad, moments) = given.take()?;
    let [parameter, grad, first, second] = [parameter, grad, moments.first, moments.second]
        .map(|tensor| same(tensor.into_primitive().tensor()).expect("all of one backend"));
    let [parameter, first, second] = I::adam(parameter, grad, [first, second], step).map(wrapped);
    Some((parameter, Moments { first, second }))
}
