//! Layer normalization.

use rayon::prelude::*;

use super::sums::add_up;
use crate::buffer::{by_tasks_with, rows_of_task, task_of_rows};
use crate::simd::{sum, sum2, vectorised};
use crate::sizes::check_rows;
use crate::types::NormParents;

/// Normalized rows, and the statistics that their backward pass needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Normed {
    /// `[rows, d_model]`
    pub output: Vec<f32>,
    /// Mean of each row.
    pub means: Vec<f32>,
    /// `1 / √(v + ε)` of each row, with the variance `v` of the row.
    pub reciprocal_deviations: Vec<f32>,
}

/// The requested gradients of layer normalization.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NormGradients {
    /// Gradient of the rows.
    pub x: Option<Vec<f32>>,
    /// Gradients of gamma and beta.
    pub parameters: Option<[Vec<f32>; 2]>,
}

/// Panics unless the values are rows as wide as gamma and beta.
fn check(x: &[f32], [gamma, beta]: [&[f32]; 2]) {
    assert_eq!(gamma.len(), beta.len(), "lengths of gamma and beta");
    check_rows(x.len(), gamma.len());
}

/// `γ (x - m) / √(v + ε) + β`, on rows as wide as gamma and beta.
///
/// # Panics
/// When gamma and beta differ in length, or the length of `x` is not a multiple of theirs.
///
/// ```
/// use transformer_cpu::layer_norm;
///
/// // m = 0 and v = (9 + 1 + 1 + 9) / 4 = 5: the last value becomes 2 · 3/√5 + 1.
/// let normed = layer_norm(&[-3.0, -1.0, 1.0, 3.0], &[2.0; 4], &[1.0; 4], 0.0);
/// assert!((normed.output[3] - (6.0 / 5.0_f32.sqrt() + 1.0)).abs() < 1e-6);
/// assert_eq!(normed.means, [0.0]);
/// ```
pub fn layer_norm(x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32) -> Normed {
    let d_model = gamma.len();
    check(x, [gamma, beta]);
    let task_numbers = task_of_rows(d_model);
    let (output, statistics) = by_tasks_with(x.len(), task_numbers, |task, output| {
        let x = &x[task * task_numbers..][..output.len()];
        let rows = output.len() / d_model;
        let (mut means, mut deviations) = (vec![0.0; rows], vec![0.0; rows]);
        vectorised!({
            let rows = output
                .chunks_exact_mut(d_model)
                .zip(x.chunks_exact(d_model));
            let statistics = means.iter_mut().zip(&mut deviations);
            for ((y, x), (mean, deviation)) in rows.zip(statistics) {
                let (m, squares) = mean_and_squares(x);
                let r = 1.0 / (squares / d_model as f32 + epsilon).sqrt();
                for (((y, &x), &g), &b) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                    *y = (x - m) * r * g + b;
                }
                (*mean, *deviation) = (m, r);
            }
        });
        (means, deviations)
    });
    let (means, deviations): (Vec<_>, Vec<_>) = statistics.into_iter().unzip();
    Normed {
        output,
        means: means.concat(),
        reciprocal_deviations: deviations.concat(),
    }
}

/// The mean `m` of a row, and `Σ (x - m)²`.
#[inline(always)]
pub fn mean_and_squares(x: &[f32]) -> (f32, f32) {
    let m = sum(x, |x| x) / x.len() as f32;
    (m, sum(x, |x| (x - m) * (x - m)))
}

/// Gradients of the inputs, given the gradient of the output. The statistics are the means and reciprocal
/// deviations of [`Normed`].
///
/// # Panics
/// When the lengths do not agree.
pub fn layer_norm_backward(
    grad: &[f32],
    x: &[f32],
    gamma: &[f32],
    statistics: [&[f32]; 2],
    wanted: NormParents,
) -> NormGradients {
    let d_model = gamma.len();
    check(x, [gamma, gamma]);
    let rows = x.len() / d_model.max(1);
    assert_eq!(grad.len(), x.len(), "lengths of gradient and x");
    assert_eq!(
        statistics.map(<[f32]>::len),
        [rows; 2],
        "number of statistics and of rows"
    );
    let (task_numbers, task_rows) = (task_of_rows(d_model), rows_of_task(d_model));
    let rows_in = |task: usize| {
        let first = task * task_rows;
        let rows = first..rows.min(first + task_rows);
        let numbers = rows.start * d_model..rows.end * d_model;
        Rows {
            grad: &grad[numbers.clone()],
            x: &x[numbers],
            means: &statistics[0][rows.clone()],
            deviations: &statistics[1][rows],
        }
    };
    let parameters_of = |rows: &Rows<'_>| match wanted.parameters {
        true => rows.parameter_gradients(d_model),
        false => [vec![], vec![]],
    };
    let (x_grad, parts) = match wanted.x {
        true => {
            let (x_grad, parts) = by_tasks_with(x.len(), task_numbers, |task, x_grad| {
                let rows = rows_in(task);
                rows.x_gradient(gamma, x_grad);
                parameters_of(&rows)
            });
            (Some(x_grad), parts)
        }
        false => {
            let tasks = 0..x.len().div_ceil(task_numbers);
            let parts = tasks
                .into_par_iter()
                .map(|task| parameters_of(&rows_in(task)));
            (None, parts.collect())
        }
    };
    let parameters = wanted.parameters.then(|| {
        let (gammas, betas): (Vec<_>, Vec<_>) = parts.into_iter().map(|[g, b]| (g, b)).unzip();
        [add_up(&gammas, d_model), add_up(&betas, d_model)]
    });
    NormGradients {
        x: x_grad,
        parameters,
    }
}

/// The rows of one task of the backward pass.
struct Rows<'a> {
    grad: &'a [f32],
    x: &'a [f32],
    means: &'a [f32],
    deviations: &'a [f32],
}

impl Rows<'_> {
    /// Writes the gradient of `x`.
    fn x_gradient(&self, gamma: &[f32], x_grad: &mut [f32]) {
        let d_model = gamma.len();
        vectorised!({
            let inputs = self
                .grad
                .chunks_exact(d_model)
                .zip(self.x.chunks_exact(d_model));
            let rows = x_grad.chunks_exact_mut(d_model).zip(inputs);
            for ((dx, (dy, x)), (&m, &r)) in rows.zip(self.means.iter().zip(self.deviations)) {
                for ((dx, &dy), &g) in dx.iter_mut().zip(dy).zip(gamma) {
                    *dx = dy * g;
                }
                let mean = sum(dx, |dx| dx) / d_model as f32;
                let along = sum2(dx, x, |dx, x| dx * (x - m)) * r * r / d_model as f32;
                for (dx, &x) in dx.iter_mut().zip(x) {
                    *dx = (*dx - mean - (x - m) * along) * r;
                }
            }
        });
    }

    /// The gradients of gamma and beta.
    fn parameter_gradients(&self, d_model: usize) -> [Vec<f32>; 2] {
        let [mut gamma_grad, mut beta_grad] = [vec![0.0; d_model], vec![0.0; d_model]];
        vectorised!({
            let rows = self
                .grad
                .chunks_exact(d_model)
                .zip(self.x.chunks_exact(d_model));
            for ((dy, x), (&m, &r)) in rows.zip(self.means.iter().zip(self.deviations)) {
                let sums = gamma_grad.iter_mut().zip(&mut beta_grad);
                for ((dg, db), (&dy, &x)) in sums.zip(dy.iter().zip(x)) {
                    *dg += dy * (x - m) * r;
                    *db += dy;
                }
            }
        });
        [gamma_grad, beta_grad]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_is_computed() {
        let numbers = |seed: usize, count: usize| -> Vec<f32> {
            (0..count)
                .map(|i| ((i * 37 + seed) % 101) as f32 / 50.0)
                .collect()
        };
        let (x, grad) = (numbers(1, 40 * 513), numbers(2, 40 * 513));
        let (gamma, beta) = (numbers(3, 513), numbers(4, 513));
        let normed = layer_norm(&x, &gamma, &beta, 1e-5);
        let backward = |of_x, parameters| {
            let statistics = [normed.means.as_slice(), &normed.reciprocal_deviations];
            let wanted = NormParents {
                x: of_x,
                parameters,
            };
            let gradients = layer_norm_backward(&grad, &x, &gamma, statistics, wanted);
            (gradients.x, gradients.parameters)
        };
        let all = backward(true, true);
        assert!(all.0.is_some() && all.1.is_some());
        assert_eq!(backward(true, false), (all.0.clone(), None));
        assert_eq!(backward(false, true), (None, all.1));
        assert_eq!(backward(false, false), (None, None));
    }
}
