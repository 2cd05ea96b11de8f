//! Dropout.

use rayon::prelude::*;

use super::TASK;
use crate::random::Keep;
use crate::simd::vectorised;

/// Drops entries of `x`; applied to a gradient, with the same `keep`, it is the backward pass.
pub fn dropout(x: &[f32], keep: Keep) -> Vec<f32> {
    let mut output = vec![0.0; x.len()];
    add_kept(&mut output, x, keep);
    output
}

/// `residual + dropout(x)`
///
/// # Panics
/// When the lengths differ.
pub fn add_dropout(residual: &[f32], x: &[f32], keep: Keep) -> Vec<f32> {
    assert_eq!(residual.len(), x.len(), "numbers of residual and x");
    let mut output = residual.to_vec();
    add_kept(&mut output, x, keep);
    output
}

/// Adds `dropout(input)` to `output`.
fn add_kept(output: &mut [f32], input: &[f32], keep: Keep) {
    output
        .par_chunks_mut(TASK)
        .zip(input.par_chunks(TASK))
        .enumerate()
        .for_each(|(row, (output, input))| {
            vectorised!({
                let factor = keep.row(row);
                for (column, (y, &x)) in output.iter_mut().zip(input).enumerate() {
                    *y += x * factor(column);
                }
            });
        });
}
