//! Sums.

use rayon::prelude::*;

use crate::buffer::{TASK, task_of_rows};
use crate::simd::{sum, vectorised};
use crate::sizes::check_rows;

/// The sum of all rows, each of `width` values.
///
/// # Panics
/// When the values do not fill whole rows.
pub fn sum_rows(x: &[f32], width: usize) -> Vec<f32> {
    check_rows(x.len(), width);
    let parts: Vec<Vec<f32>> = x
        .par_chunks(task_of_rows(width))
        .map(|rows| {
            let mut sums = vec![0.0; width];
            vectorised!({
                for row in rows.chunks_exact(width) {
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                }
            });
            sums
        })
        .collect();
    add_up(&parts, width)
}

/// The sum of vectors of the same width, in order.
pub(super) fn add_up(parts: &[Vec<f32>], width: usize) -> Vec<f32> {
    let mut all = vec![0.0; width];
    for part in parts {
        all.iter_mut()
            .zip(part)
            .for_each(|(all, part)| *all += part);
    }
    all
}

/// The sum of the squares of all values: in single precision within a task, in double precision over tasks.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    let parts: Vec<f32> = x
        .par_chunks(TASK)
        .map(|x| vectorised!(sum(x, |x| x * x)))
        .collect();
    parts.into_iter().map(f64::from).sum::<f64>() as f32
}
