//! Inference operations on rows, in place and on this thread: the operations of a decoding step between its matrix
//! multiplications, which are too small to distribute over threads.

mod attend;
mod likeliest;
#[cfg(test)]
mod tests;

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

pub use self::attend::{Slots, attend};
pub use self::likeliest::likeliest;
use crate::elementwise::loss::log_sum_exp;
use crate::elementwise::norm::mean_and_squares;
pub use crate::elementwise::turn::turn;
use crate::simd::{erf, exp, max, sum, vectorised};
use crate::sizes::check_rows;
use crate::types::Activation;

/// √(8/π)
const SQRT_8_BY_PI: f32 = FRAC_2_SQRT_PI * SQRT_2;

/// `x += y`
///
/// # Panics
/// When the lengths differ.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "lengths of two summands");
    vectorised!(x.iter_mut().zip(y).for_each(|(x, &y)| *x += y));
}

/// The divisor of `x - m` in layer normalization, with the mean `m` of a row of `d` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// `√(v + ε)`, with the variance `v = Σ (x - m)² / d`.
    Variance,
    /// `s + ε`, with the standard deviation `s = √(Σ (x - m)² / (d - 1))`.
    UnbiasedDeviation,
}

/// The smallest variance whose root is taken, so that rows of equal values become zeros with any ε.
const SMALLEST_VARIANCE: f32 = 1e-36;

/// Layer normalization of each row of `x`, `[rows, width]`: `γ (x - m) / spread + β`.
///
/// # Panics
/// When gamma and beta differ in length, or the length of `x` is not a multiple of theirs.
///
/// ```
/// use transformer_cpu::rows::{Spread, layer_norm};
///
/// // m = 0 and v = (9 + 1 + 1 + 9) / 4 = 5: the last value becomes 2 · 3/√5 + 1.
/// let mut x = [-3.0, -1.0, 1.0, 3.0];
/// layer_norm(&mut x, &[2.0; 4], &[1.0; 4], 0.0, Spread::Variance);
/// assert!((x[3] - (6.0 / 5.0_f32.sqrt() + 1.0)).abs() < 1e-6);
/// ```
pub fn layer_norm(x: &mut [f32], gamma: &[f32], beta: &[f32], epsilon: f32, spread: Spread) {
    let width = gamma.len();
    assert_eq!(width, beta.len(), "lengths of gamma and beta");
    check_rows(x.len(), width);
    vectorised!({
        for x in x.chunks_exact_mut(width.max(1)) {
            let (m, squares) = mean_and_squares(x);
            let spread = match spread {
                Spread::Variance => (squares / width as f32 + epsilon).sqrt(),
                Spread::UnbiasedDeviation => {
                    let variance = squares / (width as f32 - 1.0);
                    variance.max(SMALLEST_VARIANCE).sqrt() + epsilon
                }
            };
            let r = 1.0 / spread;
            for ((x, &g), &b) in x.iter_mut().zip(gamma).zip(beta) {
                *x = (*x - m) * r * g + b;
            }
        }
    });
}

/// RMS normalization of each row of `x`, `[rows, width]`: `γ x / √(q + ε)`, with the mean square `q` of the row.
///
/// # Panics
/// When the length of `x` is not a multiple of gamma's.
///
/// ```
/// // q = (9 + 1 + 1 + 25) / 4 = 9: the last value becomes 2 · 5/3.
/// let mut x = [-3.0, -1.0, 1.0, 5.0];
/// transformer_cpu::rows::rms_norm(&mut x, &[2.0; 4], 0.0);
/// assert!((x[3] - 10.0 / 3.0_f32).abs() < 1e-6);
/// ```
pub fn rms_norm(x: &mut [f32], gamma: &[f32], epsilon: f32) {
    let width = gamma.len();
    check_rows(x.len(), width);
    vectorised!({
        for x in x.chunks_exact_mut(width.max(1)) {
            let squares = sum(x, |x| x * x) / width as f32;
            let r = 1.0 / (squares + epsilon).sqrt();
            for (x, &g) in x.iter_mut().zip(gamma) {
                *x = *x * r * g;
            }
        }
    });
}

/// Applies an activation to every value.
pub fn activate(x: &mut [f32], activation: Activation) {
    match activation {
        Activation::Relu => map(x, relu),
        Activation::Gelu => map(x, gelu),
        Activation::GeluTanh => map(x, gelu_tanh),
        Activation::Silu => map(x, silu),
    }
}

/// NaN stays NaN.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    x * ((erf(x * FRAC_1_SQRT_2) + 1.0) * 0.5)
}

/// `(1 + tanh(u)) / 2` is `σ(2u)`.
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    x * sigmoid(SQRT_8_BY_PI * (x + 0.044_715 * x * x * x))
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

#[inline(always)]
fn map(x: &mut [f32], f: impl Fn(f32) -> f32) {
    vectorised!(x.iter_mut().for_each(|x| *x = f(*x)));
}

/// One step of a recurrence with a forget gate: `state = σ(gate) state + (1 - σ(gate)) x`.
///
/// # Panics
/// When the lengths differ.
///
/// ```
/// // σ(ln 3) = 3/4, so 6 of the 8 and 1 of the 4 remain.
/// let mut state = [8.0];
/// transformer_cpu::rows::forget(&mut state, &[4.0], &[3.0_f32.ln()]);
/// assert!((state[0] - 7.0).abs() < 1e-5);
/// ```
pub fn forget(state: &mut [f32], x: &[f32], gate: &[f32]) {
    let lengths = [state.len(), x.len(), gate.len()];
    assert!(
        lengths == [state.len(); 3],
        "lengths of state, input and gate: {lengths:?}"
    );
    vectorised!({
        for ((state, &x), &gate) in state.iter_mut().zip(x).zip(gate) {
            *state = x + sigmoid(gate) * (*state - x);
        }
    });
}

/// The log-softmax of each row, `[rows, width]`. −∞ stays −∞, and a row with NaN becomes NaN.
///
/// # Panics
/// When the values do not fill whole rows.
pub fn log_softmax(x: &mut [f32], width: usize) {
    check_rows(x.len(), width);
    vectorised!({
        for x in x.chunks_exact_mut(width.max(1)) {
            let log_sum_exp = log_sum_exp(x, max(x));
            x.iter_mut().for_each(|x| *x -= log_sum_exp);
        }
    });
}
