//! Rotary positions.

use crate::buffer::{by_tasks, rows_of_task, task_of_rows};
use crate::simd::vectorised;
use crate::sizes::check_rows;

/// Rotates the pairs of a row's heads, `[heads, width]` (rotary positions). In each head, value `i` of the first
/// half and value `i` of the second form a pair `(a, b)`, which becomes `(a cos - b sin, b cos + a sin)`. `turns`
/// has the cosines of all pairs, then their sines: `[width]`.
///
/// # Panics
/// When the width is odd, or the row does not consist of whole heads.
///
/// ```
/// // The first pair by a right angle, the second not at all.
/// let mut x = [1.0, 2.0, 3.0, 4.0];
/// transformer_cpu::rows::turn(&mut x, &[0.0, 1.0, 1.0, 0.0]);
/// assert_eq!(x, [-3.0, 2.0, 1.0, 4.0]);
/// ```
pub fn turn(x: &mut [f32], turns: &[f32]) {
    let width = turns.len();
    check_rows(x.len(), width);
    assert!(width.is_multiple_of(2), "pairs of {width} values");
    let (cos, sin) = turns.split_at(width / 2);
    vectorised!({
        for head in x.chunks_exact_mut(width.max(1)) {
            let (a, b) = head.split_at_mut(width / 2);
            for ((a, b), (&cos, &sin)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    });
}

/// Rotates the first `turned` values of each row by the turns of its position, as [`turn`]; the others are copied.
///
/// - `x`: rows of `width` values, sequence after sequence
/// - `turns`: the cosines and sines of each position of a sequence, in rows of `d_k` values
///
/// # Panics
/// When the sizes do not agree.
///
/// ```
/// // Two positions; the second is turned by a right angle. The third value of each is not turned.
/// let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let turns = [1.0, 0.0, 0.0, 1.0];
/// let y = transformer_cpu::turn_heads(&x, 3, 2, &turns, 2);
/// assert_eq!(y, [1.0, 2.0, 3.0, -5.0, 4.0, 6.0]);
/// ```
pub fn turn_heads(x: &[f32], width: usize, turned: usize, turns: &[f32], d_k: usize) -> Vec<f32> {
    check_rows(x.len(), width);
    check_rows(turns.len(), d_k);
    if d_k == 0 {
        return x.to_vec();
    }
    let len = turns.len() / d_k;
    let task_numbers = task_of_rows(width);
    by_tasks(x.len(), task_numbers, |task, output| {
        output.copy_from_slice(&x[task * task_numbers..][..output.len()]);
        let first = task * rows_of_task(width);
        for (row, y) in output.chunks_exact_mut(width).enumerate() {
            let position = (first + row) % len;
            turn(&mut y[..turned], &turns[position * d_k..][..d_k]);
        }
    })
}
