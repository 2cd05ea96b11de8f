//! From a source to its most likely target.

mod greedy;

pub use greedy::{GreedyOptions, greedy};

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

use crate::config::TransformerConfig;
use crate::error::{DecodeError, SourceProblem};

/// What decoding found for one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hypothesis {
    /// The target, without `<bos>` and `<eos>`.
    pub tokens: Vec<u32>,
    /// Whether it ended in `<eos>` rather than at the length limit.
    pub finished: bool,
}

/// How many tokens a target may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxLength {
    /// The source's length and this many more (§6.1: 50).
    SourcePlus(usize),
    /// This many.
    Tokens(usize),
}

impl Default for MaxLength {
    fn default() -> Self {
        Self::SourcePlus(50)
    }
}

impl MaxLength {
    /// The limit for a source of `src_len` tokens, within the model's positions.
    fn limit(self, src_len: usize, config: &TransformerConfig) -> usize {
        let wanted = match self {
            Self::SourcePlus(more) => src_len.saturating_add(more),
            Self::Tokens(tokens) => tokens,
        };
        wanted.min(config.max_len().unwrap_or(usize::MAX))
    }
}

/// One tensor of all sources, filled up with `<pad>`.
///
/// # Shapes
/// - output: `[batch, src_len]`, the longest source's length
///
/// # Errors
/// When a source is empty, longer than the model's positions, or holds a token that the model does
/// not know.
pub fn source_batch<B: Backend>(
    sources: &[Vec<u32>],
    config: &TransformerConfig,
    device: &B::Device,
) -> Result<Tensor<B, 2, Int>, DecodeError> {
    for (index, source) in sources.iter().enumerate() {
        if let Some(problem) = source_problem(source, config) {
            return Err(DecodeError { index, problem });
        }
    }
    Ok(padded(sources, config.pad_id, device))
}

fn source_problem(source: &[u32], config: &TransformerConfig) -> Option<SourceProblem> {
    let length = source.len();
    if length == 0 {
        return Some(SourceProblem::Empty);
    }
    if let Some(max_len) = config.max_len().filter(|&max_len| length > max_len) {
        return Some(SourceProblem::TooLong { length, max_len });
    }
    let vocab_size = config.src_vocab_size;
    let unknown = source.iter().find(|&&token| token as usize >= vocab_size);
    unknown.map(|&token| SourceProblem::UnknownToken { token, vocab_size })
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
