//! Greedy decoding: the most likely token, every time.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use super::{Hypothesis, MaxLength, padded, source_batch};
use crate::cache::DecoderCache;
use crate::error::DecodeError;
use crate::transformer::Transformer;

/// How [`greedy`] decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GreedyOptions {
    /// Where a target without `<eos>` is cut.
    pub max_length: MaxLength,
}

/// Decodes a batch of sources, taking the most likely token at each step.
///
/// The hypotheses come in the order of the sources. A row leaves the batch when it has ended.
///
/// # Errors
/// When a source is empty, longer than the model's positions, or holds a token that the model does
/// not know.
pub fn greedy<B: Backend>(
    model: &Transformer<B>,
    sources: &[Vec<u32>],
    options: &GreedyOptions,
    device: &B::Device,
) -> Result<Vec<Hypothesis>, DecodeError> {
    let config = model.config();
    let mut hypotheses: Vec<_> = sources.iter().map(|_| Hypothesis::empty()).collect();
    if sources.is_empty() {
        return Ok(hypotheses);
    }
    let limit = |row: usize| options.max_length.limit(sources[row].len(), config);

    let memory = model.encode(source_batch(sources, config, device)?);
    let mut cache = model.start_decoding(&memory);
    let mut rows: Vec<usize> = (0..sources.len()).collect();
    let mut last = vec![config.bos_id; rows.len()];
    loop {
        let ended = |row: usize| {
            let hypothesis: &Hypothesis = &hypotheses[row];
            hypothesis.finished || hypothesis.tokens.len() >= limit(row)
        };
        let kept: Vec<usize> = (0..rows.len()).filter(|&at| !ended(rows[at])).collect();
        if kept.is_empty() {
            return Ok(hypotheses);
        }
        if kept.len() < rows.len() {
            cache = keep_rows(cache, &kept, device);
            rows = kept.iter().map(|&at| rows[at]).collect();
            last = kept.iter().map(|&at| last[at]).collect();
        }
        last = most_likely_next(model, &last, &mut cache, device);
        for (&row, &token) in rows.iter().zip(&last) {
            if token == config.eos_id {
                hypotheses[row].finished = true;
            } else {
                hypotheses[row].tokens.push(token);
            }
        }
    }
}

impl Hypothesis {
    fn empty() -> Self {
        Self {
            tokens: Vec::new(),
            finished: false,
        }
    }
}

/// One step of the decoder: the most likely token after each row's last.
fn most_likely_next<B: Backend>(
    model: &Transformer<B>,
    last: &[u32],
    cache: &mut DecoderCache<B>,
    device: &B::Device,
) -> Vec<u32> {
    let column: Vec<[u32; 1]> = last.iter().map(|&token| [token]).collect();
    let tokens = padded(&column, model.config().pad_id, device);
    let logits = model.generate(model.decode_next(tokens, cache, None));
    let next = logits.argmax(2).into_data();
    next.iter::<i64>().map(|token| token as u32).collect()
}

fn keep_rows<B: Backend>(
    cache: DecoderCache<B>,
    rows: &[usize],
    device: &B::Device,
) -> DecoderCache<B> {
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    cache.select(&Tensor::<B, 1, Int>::from_data(rows.as_slice(), device))
}
