//! Token embeddings.

use crate::buffer::{by_tasks, rows_of_task, task_of_rows};
use crate::simd::vectorised;
use crate::sizes::count;

/// Looks up the tokens' rows in a table `[vocab_size, d_model]`, times `scale`: `[tokens, d_model]` (§3.4).
///
/// # Panics
/// When the table does not have this length, or a token is not below `vocab_size`.
///
/// ```
/// use transformer_cpu::embedding;
///
/// let table = [1.0, 2.0, 3.0, 4.0];
/// assert_eq!(embedding(&table, [2, 2], &[1, 0, 1], 2.0), [6.0, 8.0, 2.0, 4.0, 6.0, 8.0]);
/// ```
pub fn embedding(
    table: &[f32],
    [vocab_size, d_model]: [usize; 2],
    tokens: &[usize],
    scale: f32,
) -> Vec<f32> {
    let shape = [vocab_size, d_model];
    assert_eq!(table.len(), count(&shape), "length of a table {shape:?}");
    check_tokens(tokens, vocab_size);
    let numbers = count(&[tokens.len(), d_model]);
    by_tasks(numbers, task_of_rows(d_model), |task, output| {
        let tokens = &tokens[task * rows_of_task(d_model)..];
        vectorised!({
            for (row, &token) in output.chunks_exact_mut(d_model).zip(tokens) {
                let from = &table[token * d_model..][..d_model];
                row.iter_mut().zip(from).for_each(|(y, x)| *y = scale * x);
            }
        });
    })
}

/// Gradient of the table, `[vocab_size, d_model]`: per token, the sum of the gradients of its rows, times `scale`.
///
/// # Panics
/// When the gradient does not have one row per token, or a token is not below `vocab_size`.
pub fn embedding_gradient(
    grad: &[f32],
    tokens: &[usize],
    [vocab_size, d_model]: [usize; 2],
    scale: f32,
) -> Vec<f32> {
    assert_eq!(
        grad.len(),
        count(&[tokens.len(), d_model]),
        "length of a gradient for {} tokens",
        tokens.len()
    );
    check_tokens(tokens, vocab_size);
    // Sorted by token, then by position: each task's tokens are adjacent, and each sum has a fixed order.
    let mut sorted: Vec<_> = tokens.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let numbers = count(&[vocab_size, d_model]);
    by_tasks(numbers, task_of_rows(d_model), |task, sums| {
        let first = task * rows_of_task(d_model);
        let begin = sorted.partition_point(|&(token, _)| token < first);
        let end = sorted.partition_point(|&(token, _)| token < first + sums.len() / d_model);
        vectorised!({
            for &(token, position) in &sorted[begin..end] {
                let sums = &mut sums[(token - first) * d_model..][..d_model];
                let row: &[f32] = &grad[position * d_model..][..d_model];
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(sum, x)| *sum += scale * x);
            }
        });
    })
}

fn check_tokens(tokens: &[usize], vocab_size: usize) {
    if let Some(token) = tokens.iter().find(|token| **token >= vocab_size) {
        panic!("token {token} is outside the vocabulary of {vocab_size}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "token 3 is outside the vocabulary of 3")]
    fn a_token_beyond_the_table_is_refused() {
        embedding(&[0.0; 6], [3, 2], &[0, 3], 1.0);
    }

    #[test]
    #[should_panic(expected = "length of a table [3, 2]")]
    fn a_table_of_another_size_is_refused() {
        embedding(&[0.0; 7], [3, 2], &[0], 1.0);
    }

    #[test]
    fn vectors_of_no_numbers_and_no_tokens_give_none() {
        assert!(embedding(&[], [3, 0], &[0, 2], 1.0).is_empty());
        assert!(embedding(&[0.0; 6], [3, 2], &[], 1.0).is_empty());
        assert!(embedding_gradient(&[], &[0, 2], [3, 0], 1.0).is_empty());
        assert_eq!(embedding_gradient(&[], &[], [3, 2], 1.0), [0.0; 6]);
    }

    #[test]
    #[should_panic(expected = "token 3 is outside the vocabulary of 3")]
    fn a_token_beyond_the_gradient_is_refused() {
        embedding_gradient(&[0.0; 4], &[0, 3], [3, 2], 1.0);
    }

    #[test]
    #[should_panic(expected = "length of a gradient for 2 tokens")]
    fn a_gradient_of_another_size_is_refused() {
        embedding_gradient(&[0.0; 3], &[0, 1], [3, 2], 1.0);
    }
}
