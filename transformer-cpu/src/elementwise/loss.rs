//! Log-softmax and cross entropy.

use rayon::prelude::*;

use crate::buffer::by_tasks;
use crate::simd::{exp, max, sum, vectorised};
use crate::sizes::check_rows;

/// `ln Σ eˣ`, given the largest value.
#[inline(always)]
pub fn log_sum_exp(x: &[f32], largest: f32) -> f32 {
    let sum = sum(
        x,
        #[inline(always)]
        |x| exp(x - largest),
    );
    sum.ln() + largest
}

/// The log-softmax of each row of `width` values.
///
/// # Panics
/// When the values do not fill whole rows.
pub fn log_softmax(x: &[f32], width: usize) -> Vec<f32> {
    check_rows(x.len(), width);
    let width = width.max(1);
    by_tasks(x.len(), width, |row, output| {
        let x = &x[row * width..][..width];
        vectorised!({
            let log_sum_exp = log_sum_exp(x, max(x));
            for (y, x) in output.iter_mut().zip(x) {
                *y = x - log_sum_exp;
            }
        });
    })
}

/// The cross entropy of a row of logits, and its terms.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RowLoss {
    /// The loss against the smoothed label.
    pub loss: f32,
    /// The log-sum-exp of the logits.
    pub log_sum_exp: f32,
    /// The label's logit.
    pub at_label: f32,
    /// The largest logit.
    pub largest: f32,
}

/// Cross entropy of each row of logits, `[rows, vocab_size]`, against its label, `[rows]`, smoothed by ε (§5.4).
///
/// # Panics
/// When the logits do not have one row per label, or a label is not below `vocab_size`.
///
/// ```
/// use transformer_cpu::cross_entropy;
///
/// // Probabilities 3/4 and 1/4; the smoothed label is 0.1, 0.9.
/// let rows = cross_entropy(&[3.0_f32.ln(), 0.0], &[1], 0.2);
/// let expected = -0.1 * 0.75_f32.ln() - 0.9 * 0.25_f32.ln();
/// assert!((rows[0].loss - expected).abs() < 1e-6);
/// ```
pub fn cross_entropy(logits: &[f32], labels: &[usize], smoothing: f32) -> Vec<RowLoss> {
    let vocab_size = vocab_size(logits, labels);
    logits
        .par_chunks(vocab_size)
        .zip(labels)
        .map(|(x, &label)| {
            let [largest, all, log_sum_exp] = vectorised!({
                let largest = max(x);
                [largest, sum(x, |x| x), log_sum_exp(x, largest)]
            });
            let at_label = x[label];
            let mean = all / vocab_size as f32;
            RowLoss {
                loss: log_sum_exp - (1.0 - smoothing) * at_label - smoothing * mean,
                log_sum_exp,
                at_label,
                largest,
            }
        })
        .collect()
}

/// Turns logits into their gradient, given the gradient of each row's loss.
///
/// # Panics
/// When the lengths do not agree, or a label is not below `vocab_size`.
pub fn cross_entropy_backward(
    grad: &[f32],
    logits: &mut [f32],
    labels: &[usize],
    log_sum_exp: &[f32],
    smoothing: f64,
) {
    let vocab_size = vocab_size(logits, labels);
    assert_eq!(
        [grad.len(), log_sum_exp.len()],
        [labels.len(); 2],
        "numbers of gradients, log-sum-exps and labels"
    );
    let share = (smoothing / vocab_size as f64) as f32;
    logits
        .par_chunks_mut(vocab_size)
        .zip(grad.par_iter().zip(log_sum_exp).zip(labels))
        .for_each(|(x, ((&grad, &lse), &label))| {
            if grad == 0.0 {
                // Padding.
                x.fill(0.0);
                return;
            }
            vectorised!({
                for x in x.iter_mut() {
                    *x = grad * (exp(*x - lse) - share);
                }
            });
            x[label] -= grad * (1.0 - smoothing as f32);
        });
}

/// The width of logits with one row per label; at least one, as `chunks` requires.
fn vocab_size(logits: &[f32], labels: &[usize]) -> usize {
    assert!(
        logits.len().is_multiple_of(labels.len()),
        "{} logits for {} labels",
        logits.len(),
        labels.len()
    );
    let vocab_size = logits.len() / labels.len().max(1);
    let largest = labels.iter().max();
    assert!(
        largest.is_none_or(|&label| label < vocab_size),
        "label {largest:?} for {vocab_size} logits"
    );
    vocab_size.max(1)
}
