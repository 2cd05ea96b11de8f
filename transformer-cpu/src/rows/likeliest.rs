//! The most likely tokens of a row.

use crate::elementwise::loss::log_sum_exp;
use crate::simd::{max, vectorised};
use crate::sizes::check_rows;

/// Values that are skipped together if none of them is among the largest, as most of a large vocabulary.
const CHUNK: usize = 64;

/// The most likely tokens of each row of logits, in ascending order, with their log-probabilities: the log-softmax of
/// the row. Of equal logits, the first are chosen. A row with fewer finite logits ends in tokens of the largest number,
/// with log-probabilities of −∞. A row with NaN gets NaN.
///
/// The time grows with the square of the number of tokens.
///
/// # Shapes
/// - logits: `[rows, width]`
/// - tokens and log_probs: `[rows, count]`, overwritten
///
/// # Panics
/// When the lengths do not agree.
///
/// ```
/// // Probabilities 1/10, 6/10, 0 and 3/10.
/// let logits = [1.0_f32.ln(), 6.0_f32.ln(), f32::NEG_INFINITY, 3.0_f32.ln()];
/// let (mut tokens, mut log_probs) = ([0; 2], [0.0; 2]);
/// transformer_cpu::rows::likeliest(&logits, 4, &mut tokens, &mut log_probs);
/// assert_eq!(tokens, [1, 3]);
/// assert!((log_probs[1] - 0.3_f32.ln()).abs() < 1e-6);
/// ```
pub fn likeliest(logits: &[f32], width: usize, tokens: &mut [u32], log_probs: &mut [f32]) {
    check_rows(logits.len(), width);
    let width = width.max(1);
    let rows = logits.len() / width;
    assert_eq!(
        [tokens.len(), tokens.len() % rows.max(1)],
        [log_probs.len(), 0],
        "lengths of tokens and log-probabilities, for {rows} rows"
    );
    let count = (tokens.len() / rows.max(1)).max(1);
    let found = tokens.chunks_mut(count).zip(log_probs.chunks_mut(count));
    vectorised!({
        for (logits, (tokens, log_probs)) in logits.chunks_exact(width).zip(found) {
            largest(logits, tokens, log_probs);
            let log_sum_exp = log_sum_exp(logits, max(logits));
            log_probs
                .iter_mut()
                .for_each(|log_prob| *log_prob -= log_sum_exp);
        }
    });
    for (tokens, log_probs) in tokens.chunks_mut(count).zip(log_probs.chunks_mut(count)) {
        sort(tokens, log_probs);
    }
}

/// Finds the largest values with their positions, in descending order.
#[inline(always)]
fn largest(x: &[f32], positions: &mut [u32], values: &mut [f32]) {
    positions.fill(u32::MAX);
    values.fill(f32::NEG_INFINITY);
    let mut least = f32::NEG_INFINITY;
    for (index, chunk) in x.chunks(CHUNK).enumerate() {
        // No early exit, so that the loop is vectorized.
        if !chunk.iter().fold(false, |any, &x| any | (x > least)) {
            continue;
        }
        for (at, &x) in (index * CHUNK..).zip(chunk) {
            if x > least {
                let place = values.partition_point(|&other| other >= x);
                values[place..].rotate_right(1);
                positions[place..].rotate_right(1);
                (values[place], positions[place]) = (x, at as u32);
                least = values[values.len() - 1];
            }
        }
    }
}

/// Sorts tokens in ascending order, with their log-probabilities.
fn sort(tokens: &mut [u32], log_probs: &mut [f32]) {
    for sorted in 1..tokens.len() {
        let place = tokens[..sorted].partition_point(|&other| other <= tokens[sorted]);
        tokens[place..=sorted].rotate_right(1);
        log_probs[place..=sorted].rotate_right(1);
    }
}
