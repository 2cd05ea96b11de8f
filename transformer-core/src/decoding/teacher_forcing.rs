//! Log-probabilities from a model's logits: of next tokens, and of given targets.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor};

use crate::decoding::batches::{column, padded};
use crate::decoding::next_token::NextToken;
use transformer_kernels as ops;

/// The log-probability of each token of targets, by teacher forcing. None are computed for padding.
///
/// # Shapes
/// - targets: `batch`, none of them empty
/// - hidden: from the decoder's input, `[batch, tgt_len]`, to its output, `[batch, tgt_len, d_model]`
/// - log_probs: from the rows of the targets' tokens, `[rows, d_model]`, to `[rows, vocab_size]`
/// - output: `[batch, tgt_len]`; after a target's end, that of its last token again
pub(crate) fn label_log_probs<B: Backend>(
    model: &impl NextToken<B>,
    targets: &[&[u32]],
    hidden: impl FnOnce(Tensor<B, 2, Int>) -> Tensor<B, 3>,
    log_probs: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>,
) -> Tensor<B, 2> {
    let (tokens, device) = (model.vocabulary().special_tokens, model.device());
    let read: Vec<Vec<u32>> = targets
        .iter()
        .map(|target| read_before(tokens.bos, target))
        .collect();
    let hidden = hidden(padded(&read, tokens.pad, &device));
    let [batch, tgt_len, _] = hidden.dims();
    let Rows { of_tokens, at } = Rows::new(targets, tgt_len);
    let index = |index: &[u32]| column::<B>(index, &device).squeeze_dim::<1>(1);
    let log_probs = log_probs(ops::gather_rows(hidden, index(&of_tokens)));
    let labels = column(&targets.concat(), &device);
    let of_tokens: Tensor<B, 1> = log_probs.gather(1, labels).squeeze_dim(1);
    of_tokens.select(0, index(&at)).reshape([batch, tgt_len])
}

/// The positions of targets in their padded batch, row by row, and the reverse.
#[derive(Debug, PartialEq)]
struct Rows {
    /// The position of each token among all positions of the batch.
    of_tokens: Vec<u32>,
    /// The token at each position; after a target's end, its last.
    at: Vec<u32>,
}

impl Rows {
    /// The positions of targets that are padded to `tgt_len`, none of them empty.
    fn new(targets: &[&[u32]], tgt_len: usize) -> Self {
        let (mut of_tokens, mut at) = (Vec::new(), Vec::new());
        for (row, target) in targets.iter().enumerate() {
            let (begin, first) = (row * tgt_len, of_tokens.len());
            let last = (first + target.len()).saturating_sub(1);
            of_tokens.extend((begin..begin + target.len()).map(|position| position as u32));
            at.extend((first..first + tgt_len).map(|token| token.min(last) as u32));
        }
        Self { of_tokens, at }
    }
}

/// The decoder's input for a target: `<bos>`, then all tokens but the last, which is only predicted.
pub(crate) fn read_before(bos: u32, target: &[u32]) -> Vec<u32> {
    let begin = target.len().saturating_sub(1);
    [&[bos], &target[..begin]].concat()
}

/// Log-probabilities over the last dimension, in single precision.
pub(crate) fn log_probs<B: Backend, const D: usize>(logits: Tensor<B, D>) -> Tensor<B, D> {
    ops::log_softmax(logits.cast(DType::F32))
}

/// [`log_probs`], −∞ for the excluded tokens: the others share all of the probability.
///
/// # Shapes
/// - logits and output: `[rows, vocab_size]`
pub(crate) fn log_probs_without<B: Backend>(
    logits: Tensor<B, 2>,
    excluded: &[u32],
) -> Tensor<B, 2> {
    let [rows, _] = logits.dims();
    let without = |logits: Tensor<B, 2>, &token: &u32| {
        let token = token as usize;
        logits.slice_fill([0..rows, token..token + 1], f32::NEG_INFINITY)
    };
    log_probs(excluded.iter().fold(logits.cast(DType::F32), without))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::config::TransformerConfig;
    use crate::models::language_model::LanguageModel;
    use burn_ndarray::NdArray;

    const TARGETS: [&[u32]; 3] = [&[5, 2], &[2], &[4, 6, 2]];

    fn model() -> LanguageModel<NdArray> {
        let config = TransformerConfig {
            d_model: 4,
            n_heads: 1,
            d_ff: 4,
            n_decoder_layers: 1,
            ..TransformerConfig::language_model(7)
        };
        config.init_language_model(1, &Default::default()).unwrap()
    }

    #[test]
    fn a_row_is_projected_for_each_token_and_none_for_padding() {
        let model = model();
        let mut rows = 0;
        let found = label_log_probs(
            &model,
            &TARGETS,
            |read| model.decode(read),
            |hidden: Tensor<NdArray, 2>| {
                rows = hidden.dims()[0];
                log_probs(model.generate(hidden))
            },
        );
        assert_eq!((rows, found.dims()), (6, [3, 3]));
        let found: Vec<f32> = found.into_data().iter().collect();
        for (target, found) in TARGETS.iter().zip(found.chunks(3)) {
            let read = padded::<NdArray>(&[read_before(1, target)], 0, &Default::default());
            let expected: Vec<f32> = log_probs(model.forward(read)).into_data().iter().collect();
            for ((found, &token), expected) in found.iter().zip(*target).zip(expected.chunks(7)) {
                let expected = expected[token as usize];
                assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
            }
        }
    }

    #[test]
    fn rows_lead_from_tokens_to_positions_and_back() {
        let found = Rows::new(&TARGETS, 3);
        let expected = Rows {
            of_tokens: vec![0, 1, 3, 6, 7, 8],
            at: vec![0, 1, 1, 2, 2, 2, 3, 4, 5],
        };
        assert_eq!(found, expected);
    }
}
