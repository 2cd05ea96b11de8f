//! Log-probabilities from a model's logits: of next tokens, and of given targets.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor};

use super::batches::padded;
use super::next_token::NextToken;
use crate::ops;

/// The log-probability of each token of targets, by teacher forcing.
///
/// # Shapes
/// - logits: from the decoder's input, `[batch, tgt_len]`, to `[batch, tgt_len, vocab_size]`
/// - output: `[batch, tgt_len]`
pub(crate) fn label_log_probs<B: Backend>(
    model: &impl NextToken<B>,
    targets: &[&[u32]],
    logits: impl FnOnce(Tensor<B, 2, Int>) -> Tensor<B, 3>,
) -> Tensor<B, 2> {
    let (tokens, device) = (model.vocabulary().special_tokens, model.device());
    let read: Vec<Vec<u32>> = targets
        .iter()
        .map(|target| read_before(tokens.bos, target))
        .collect();
    let labels = padded(targets, tokens.pad, &device);
    let log_probs = log_probs(logits(padded(&read, tokens.pad, &device)));
    log_probs.gather(2, labels.unsqueeze_dim(2)).squeeze_dim(2)
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
