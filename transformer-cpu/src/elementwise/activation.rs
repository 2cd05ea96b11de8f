//! The activation of the feed-forward network.

use crate::buffer::{TASK, by_tasks, rows_of_task, task_of_rows};
use crate::random::Keep;
use crate::simd::vectorised;
use crate::sizes::check_rows;

/// `dropout(max(0, x + b))`, on rows as wide as the bias.
///
/// # Panics
/// When the length of `x` is not a multiple of the bias's.
///
/// ```
/// use transformer_cpu::relu_dropout;
///
/// let y = relu_dropout(&[1.0, -2.0, 0.5, 3.0], &[1.0, -1.0], None);
/// assert_eq!(y, [2.0, 0.0, 1.5, 2.0]);
/// ```
pub fn relu_dropout(x: &[f32], bias: &[f32], keep: Option<Keep>) -> Vec<f32> {
    let width = bias.len();
    check_rows(x.len(), width);
    let task_numbers = task_of_rows(width);
    by_tasks(x.len(), task_numbers, |task, output| {
        let x = &x[task * task_numbers..];
        vectorised!({
            let rows = output.chunks_exact_mut(width).zip(x.chunks_exact(width));
            for (row, (y, x)) in rows.enumerate() {
                for ((y, &x), &b) in y.iter_mut().zip(x).zip(bias) {
                    let sum = x + b;
                    // NaN stays NaN.
                    *y = if sum <= 0.0 { 0.0 } else { sum };
                }
                if let Some(keep) = keep {
                    keep.apply(task * rows_of_task(width) + row, y);
                }
            }
        });
    })
}

/// Gradient of `x`. Dropped and negative entries are zero in the output; `scale` is the dropout factor of the
/// others.
///
/// # Panics
/// When the lengths differ.
pub fn relu_dropout_backward(grad: &[f32], output: &[f32], scale: f32) -> Vec<f32> {
    assert_eq!(grad.len(), output.len(), "lengths of gradient and output");
    by_tasks(grad.len(), TASK, |task, x_grad| {
        let [grad, output] = [grad, output].map(|values| &values[task * TASK..]);
        vectorised!({
            for ((dx, &dy), &y) in x_grad.iter_mut().zip(grad).zip(output) {
                *dx = if y <= 0.0 { 0.0 } else { dy * scale };
            }
        });
    })
}
