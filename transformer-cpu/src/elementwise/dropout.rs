//! Dropout.

use crate::buffer::{TASK, by_tasks};
use crate::random::Keep;
use crate::simd::vectorised;

/// Drops entries of `x` (§5.4). Applied to a gradient with the same `keep`, it is the backward pass.
pub fn dropout(x: &[f32], keep: Keep) -> Vec<f32> {
    by_tasks(x.len(), TASK, |task, output| {
        add_kept(task, output, x, keep);
    })
}

/// `residual + dropout(x)`
///
/// # Panics
/// When the lengths differ.
pub fn add_dropout(residual: &[f32], x: &[f32], keep: Keep) -> Vec<f32> {
    assert_eq!(residual.len(), x.len(), "lengths of residual and x");
    by_tasks(x.len(), TASK, |task, output| {
        output.copy_from_slice(&residual[task * TASK..][..output.len()]);
        add_kept(task, output, x, keep);
    })
}

/// Like [`dropout`], in place and on this thread.
pub fn dropout_in_place(x: &mut [f32], keep: Keep) {
    vectorised!({
        for (row, x) in x.chunks_mut(TASK).enumerate() {
            keep.apply(row, x);
        }
    });
}

/// Adds one task's part of `dropout(input)` to the same part of the output; `input` is complete.
fn add_kept(task: usize, output: &mut [f32], input: &[f32], keep: Keep) {
    let input = &input[task * TASK..];
    vectorised!({
        let factor = keep.row(task);
        for (column, (y, &x)) in output.iter_mut().zip(input).enumerate() {
            *y += x * factor(column);
        }
    });
}
