//! The Adam step.

use rayon::prelude::*;

use crate::buffer::TASK;
use crate::simd::vectorised;
use crate::types::AdamStep;

/// One step of Adam (§5.3): updates a parameter and its two moments, given a gradient.
///
/// # Panics
/// When the lengths differ.
///
/// ```
/// use transformer_cpu::AdamStep;
/// use transformer_cpu::adam;
///
/// // The first step moves by the learning rate against the sign of the gradient, whatever its magnitude.
/// let step = AdamStep {
///     beta_1: 0.9,
///     beta_2: 0.98,
///     epsilon: 1e-9,
///     learning_rate: 0.5,
///     time: 1,
/// };
/// let (mut parameter, mut moments) = ([1.0, 1.0], [[0.0; 2]; 2]);
/// let [first, second] = &mut moments;
/// adam(&mut parameter, [first, second], &[0.001, -7.0], &step);
/// assert!((parameter[0] - 0.5).abs() < 1e-5 && (parameter[1] - 1.5).abs() < 1e-5);
/// ```
pub fn adam(parameter: &mut [f32], moments: [&mut [f32]; 2], grad: &[f32], step: &AdamStep) {
    let [first, second] = moments;
    assert_eq!(
        [grad.len(), first.len(), second.len()],
        [parameter.len(); 3],
        "lengths of gradient and moments, and of the parameter"
    );
    let (size, epsilon) = step.size_and_epsilon();
    let (beta_1, beta_2) = (step.beta_1, step.beta_2);
    parameter
        .par_chunks_mut(TASK)
        .zip(first.par_chunks_mut(TASK).zip(second.par_chunks_mut(TASK)))
        .zip(grad.par_chunks(TASK))
        .for_each(|((parameter, (first, second)), grad)| {
            vectorised!({
                let moments = first.iter_mut().zip(second);
                for ((x, (m, v)), &g) in parameter.iter_mut().zip(moments).zip(grad) {
                    *m = *m * beta_1 + g * (1.0 - beta_1);
                    *v = *v * beta_2 + g * g * (1.0 - beta_2);
                    *x -= size * *m / (v.sqrt() + epsilon);
                }
            });
        });
}
