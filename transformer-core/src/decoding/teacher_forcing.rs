//! Log-probabilities from a model's logits: of next tokens, and of given targets.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, Transaction};

use crate::decoding::batches::{column, padded, to_host};
use crate::decoding::next_token::Next;
use crate::special_tokens::SpecialTokens;
use transformer_kernels as ops;

/// The log-probability of each token of targets, by teacher forcing. Padding is skipped.
///
/// # Shapes
/// - targets: one per row, none of them empty
/// - hidden: maps the decoder's input, `[rows, tgt_len]`, to its output, `[rows, tgt_len, d_model]`
/// - log_probs: maps the output at the positions of the targets' tokens, `[tokens, d_model]`, to `[tokens, vocab_size]`
pub(crate) fn label_log_probs<B: Backend>(
    targets: &[&[u32]],
    SpecialTokens { pad, bos, .. }: SpecialTokens,
    device: &B::Device,
    hidden: impl FnOnce(Tensor<B, 2, Int>) -> Tensor<B, 3>,
    log_probs: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>,
) -> Vec<Vec<f32>> {
    let read = targets.iter().map(|target| read_before(bos, target));
    let hidden = hidden(padded(&read.collect::<Vec<_>>(), pad, device));
    let [_, tgt_len, _] = hidden.dims();
    let positions = targets.iter().enumerate().flat_map(|(row, target)| {
        let first = row * tgt_len;
        (first..first + target.len()).map(|position| position as u32)
    });
    let positions = column::<B>(&positions.collect::<Vec<_>>(), device).squeeze_dim::<1>(1);
    let log_probs = log_probs(ops::gather_rows(hidden, positions));
    let labels = column(&targets.concat(), device);
    let mut of_tokens = to_host(log_probs.gather(1, labels)).into_iter();
    let of_target = |target: &&[u32]| of_tokens.by_ref().take(target.len()).collect();
    targets.iter().map(of_target).collect()
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

/// [`log_probs`] with −∞ for the excluded tokens; the probabilities of the others sum to 1.
///
/// # Shapes
/// - logits and output: `[rows, vocab_size]`
pub(crate) fn log_probs_without<B: Backend>(
    logits: Tensor<B, 2>,
    excluded: &[u32],
) -> Tensor<B, 2> {
    log_probs(without(logits, excluded))
}

/// The prediction of next tokens: the `likeliest` if they are given and the device finds them, so that little is copied
/// to the host; otherwise all.
///
/// # Shapes
/// - logits: `[rows, vocab_size]`
pub(crate) fn next_tokens<B: Backend>(
    logits: Tensor<B, 2>,
    excluded: &[u32],
    likeliest: Option<usize>,
) -> Next {
    let logits = without(logits, excluded);
    match likeliest {
        Some(count) if count <= MOST && finds_most_likely::<B>(&logits.device()) => {
            most_likely(logits, count)
        }
        _ => Next::from(log_probs(logits)),
    }
}

/// The `count` most likely tokens of each row, by one copy from the device.
fn most_likely<B: Backend>(logits: Tensor<B, 2>, count: usize) -> Next {
    let tokens = logits.clone().argtopk(count, 1);
    let values = logits.clone().gather(1, tokens.clone());
    let most = values.clone().max_dim(1);
    let sum = (logits - most.clone()).exp().sum_dim(1);
    let log_probs = values - (sum.log() + most);
    let mut copied = Transaction::default()
        .register(tokens)
        .register(log_probs)
        .execute()
        .into_iter();
    let mut values = || copied.next().expect("one value per registered tensor");
    let (tokens, log_probs) = (values(), values());
    let mut pairs: Vec<(u32, f32)> = tokens.iter::<u32>().zip(log_probs.iter()).collect();
    for row in pairs.chunks_mut(count) {
        row.sort_unstable_by_key(|&(token, _)| token);
    }
    let (tokens, log_probs) = pairs.into_iter().unzip();
    Next::among(tokens, log_probs)
}

/// The most tokens per row that a device searches for.
const MOST: usize = 64;

/// Whether a backend computes outside the host's memory, and has a kernel for the largest values: Burn's backends for a
/// processor have none.
fn finds_most_likely<B: Backend>(device: &B::Device) -> bool {
    let name = B::name(device);
    name.contains("cubecl") || (name.contains("libtorch") && !name.contains("cpu"))
}

/// Logits in single precision, −∞ for the excluded tokens.
fn without<B: Backend>(logits: Tensor<B, 2>, excluded: &[u32]) -> Tensor<B, 2> {
    let [rows, _] = logits.dims();
    let without = |logits: Tensor<B, 2>, &token: &u32| {
        let token = token as usize;
        logits.slice_fill([0..rows, token..token + 1], f32::NEG_INFINITY)
    };
    excluded.iter().fold(logits.cast(DType::F32), without)
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
            &TARGETS,
            model.config().special_tokens(),
            &Default::default(),
            |read| model.decode(read),
            |hidden: Tensor<NdArray, 2>| {
                rows = hidden.dims()[0];
                log_probs(model.generate(hidden))
            },
        );
        assert_eq!(rows, 6);
        for (target, found) in TARGETS.iter().zip(&found) {
            let read = padded::<NdArray>(&[read_before(1, target)], 0, &Default::default());
            let expected: Vec<f32> = log_probs(model.forward(read)).into_data().iter().collect();
            assert_eq!(found.len(), target.len());
            for ((found, &token), expected) in found.iter().zip(*target).zip(expected.chunks(7)) {
                let expected = expected[token as usize];
                assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
            }
        }
    }
}
