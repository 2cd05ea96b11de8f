//! Batches of sequences.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

/// The first token outside a vocabulary of this size.
pub(crate) fn unknown_token(tokens: &[u32], vocab_size: usize) -> Option<u32> {
    let mut tokens = tokens.iter().copied();
    tokens.find(|&token| token as usize >= vocab_size)
}

/// A tensor of all rows, padded with `pad_id`.
///
/// # Shapes
/// - output: `[rows, len]`, where `len` is the length of the longest row
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

/// One token per row: `[rows, 1]`.
pub(crate) fn column<B: Backend>(tokens: &[u32], device: &B::Device) -> Tensor<B, 2, Int> {
    let rows: Vec<[u32; 1]> = tokens.iter().map(|&token| [token]).collect();
    // No padding: all rows have one token.
    padded(&rows, 0, device)
}

/// The values of a tensor in row-major order.
pub(crate) fn to_host<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.into_vec().expect("converted to f32")
}

/// Groups the indices of sources of similar length into batches of at most `batch_tokens` tokens, padding included, but
/// of at least one source.
pub(super) fn batches(lengths: &[usize], batch_tokens: usize) -> Vec<Vec<usize>> {
    let mut by_length: Vec<usize> = (0..lengths.len()).collect();
    // Longest first, so that a lack of memory shows at once.
    by_length.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in by_length {
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * lengths[batch[0]].max(1) <= batch_tokens => {
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
