//! The Adam step.

use tch::{Device, Tensor};
use transformer_cpu::AdamStep;

use super::slices::{values, values_mut};

/// Updates a parameter and its two moments, which are contiguous and not held elsewhere, given a gradient.
pub fn adam(parameter_and_moments: &mut [Tensor; 3], grad: &Tensor, step: &AdamStep) {
    if grad.device() == Device::Cpu {
        // On rayon's threads: no libtorch operation runs between the steps of two parameters, so that its threads
        // soon stop spinning.
        let grad = grad.contiguous();
        let grad = values(&grad).expect("a contiguous f32 tensor on the CPU");
        let [parameter, first, second] = parameter_and_moments.each_mut().map(values_mut);
        transformer_cpu::adam(parameter, [first, second], grad, step);
        return;
    }
    let (size, epsilon) = step.size_and_epsilon();
    let [x, m, v] = parameter_and_moments;
    let _ = m.lerp_(grad, f64::from(1.0 - step.beta_1));
    let _ = v.lerp_(&grad.square(), f64::from(1.0 - step.beta_2));
    let mut divisor = v.sqrt();
    let _ = divisor.g_add_scalar_(f64::from(epsilon));
    let _ = divisor.g_mul_scalar_(-1.0 / f64::from(size));
    let _ = x.addcdiv_(m, &divisor);
}
