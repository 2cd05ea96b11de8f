//! Sources side by side.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

use crate::config::TransformerConfig;
use crate::error::{DecodeError, SourceProblem};

/// One tensor of all sources, filled up with `<pad>`.
///
/// # Shapes
/// - output: `[batch, src_len]`, the longest source's length
///
/// # Errors
/// When a source is empty, longer than the model's positions, or holds a token that the model does
/// not know.
pub fn source_batch<B: Backend>(
    sources: &[impl AsRef<[u32]>],
    config: &TransformerConfig,
    device: &B::Device,
) -> Result<Tensor<B, 2, Int>, DecodeError> {
    for (index, source) in sources.iter().enumerate() {
        check_source(source.as_ref(), config).map_err(|problem| DecodeError { index, problem })?;
    }
    Ok(padded(sources, config.pad_id, device))
}

pub(super) fn check_source(
    source: &[u32],
    config: &TransformerConfig,
) -> Result<(), SourceProblem> {
    let length = source.len();
    if length == 0 {
        return Err(SourceProblem::Empty);
    }
    if let Some(max_len) = config.max_len().filter(|&max_len| length > max_len) {
        return Err(SourceProblem::TooLong { length, max_len });
    }
    match unknown_token(source, config.src_vocab_size) {
        None => Ok(()),
        Some(token) => Err(SourceProblem::UnknownToken {
            token,
            vocab_size: config.src_vocab_size,
        }),
    }
}

pub(super) fn unknown_token(tokens: &[u32], vocab_size: usize) -> Option<u32> {
    let mut tokens = tokens.iter().copied();
    tokens.find(|&token| token as usize >= vocab_size)
}

/// One tensor of all rows, filled up with `pad_id`.
///
/// # Shapes
/// - output: `[rows, len]`, the longest row's length
pub fn padded<B: Backend>(
    rows: &[impl AsRef<[u32]>],
    pad_id: u32,
    device: &B::Device,
) -> Tensor<B, 2, Int> {
    let len = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let mut values = Vec::with_capacity(rows.len() * len);
    for row in rows {
        let row = row.as_ref();
        values.extend(row.iter().map(|&token| i64::from(token)));
        values.resize(values.len() + len - row.len(), i64::from(pad_id));
    }
    let data = TensorData::new(values, [rows.len(), len]).convert::<B::IntElem>();
    Tensor::from_data(data, device)
}

/// Indices of sources of such lengths, in batches of at most `batch_tokens`, padding included, or of
/// one. Sources of similar length stand together.
pub(super) fn batches(lengths: &[usize], batch_tokens: usize) -> Vec<Vec<usize>> {
    let mut by_length: Vec<usize> = (0..lengths.len()).collect();
    // The longest first: what does not fit into memory is known at once.
    by_length.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in by_length {
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * lengths[batch[0]] <= batch_tokens => {
                batch.push(index);
            }
            _ => batches.push(vec![index]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_similar_lengths_within_their_tokens() {
        assert_eq!(
            batches(&[3, 9, 4, 2, 4], 9),
            [vec![1], vec![2, 4], vec![0, 3]]
        );
        assert_eq!(batches(&[5, 7], 1), [[1], [0]]);
        assert!(batches(&[], 10).is_empty());
    }
}
