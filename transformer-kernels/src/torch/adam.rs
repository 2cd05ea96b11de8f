//! Adam's step.

use tch::{Device, Tensor};

use crate::adam::AdamStep;

/// Numbers per block: all passes over a block find it in the processor's cache.
const CACHED: i64 = 1 << 17;

/// Changes a parameter and its two moments, contiguous and without another holder, by a gradient.
pub fn adam(parameter_and_moments: &[Tensor; 3], grad: &Tensor, step: &AdamStep) {
    let (size, epsilon) = step.size_and_epsilon();
    let grad = grad.contiguous().view(-1);
    let [parameter, first, second] = parameter_and_moments
        .each_ref()
        .map(|tensor| tensor.view(-1));
    let count = grad.size()[0];
    let part = match grad.device() {
        Device::Cpu => CACHED,
        _ => count.max(1),
    };
    for start in (0..count).step_by(part as usize) {
        let [mut x, mut m, mut v, g] = [&parameter, &first, &second, &grad]
            .map(|tensor| tensor.narrow(0, start, part.min(count - start)));
        let _ = m.lerp_(&g, f64::from(1.0 - step.beta_1));
        let _ = v.lerp_(&g.square(), f64::from(1.0 - step.beta_2));
        let mut divisor = v.sqrt();
        let _ = divisor.g_add_scalar_(f64::from(epsilon));
        let _ = divisor.g_mul_scalar_(-1.0 / f64::from(size));
        let _ = x.addcdiv_(&m, &divisor);
    }
}
