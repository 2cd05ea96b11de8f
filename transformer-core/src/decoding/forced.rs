//! Given targets: their probability, and what their tokens attend to.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::batches::{batches, check_source, padded, unknown_token};
use super::stepper::{ensemble, log_probs_of, to_host};
use crate::decoder::DecoderMaps;
use crate::error::{DecodeError, SourceProblem};
use crate::transformer::Transformer;

/// What models make of a target.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetScore {
    /// The log-probability of each token, given the source and the tokens before it.
    pub log_probs: Vec<f32>,
}

impl TargetScore {
    /// The log-probability of the whole target.
    pub fn log_prob(&self) -> f64 {
        self.log_probs.iter().copied().map(f64::from).sum()
    }

    /// e to the mean negative log-probability of a token; 1 for a target of nothing.
    pub fn perplexity(&self) -> f64 {
        let tokens = self.log_probs.len().max(1) as f64;
        (-self.log_prob() / tokens).exp()
    }
}

/// The log-probability of each target, given its source, by a model or by an ensemble.
///
/// Targets do not begin with `<bos>`; they end in `<eos>` where that is to count. At most
/// `batch_tokens` tokens of the longer side, padding included, are computed at a time, but at least
/// one pair.
///
/// # Errors
/// When a source is empty, or a source or target is too long or holds a token that the model does
/// not know.
///
/// # Panics
/// When there is no model, or not one target for each source.
pub fn score<B: Backend>(
    models: &[&Transformer<B>],
    sources: &[impl AsRef<[u32]>],
    targets: &[impl AsRef<[u32]>],
    batch_tokens: usize,
    device: &B::Device,
) -> Result<Vec<TargetScore>, DecodeError> {
    assert!(!models.is_empty(), "no model");
    assert_eq!(
        sources.len(),
        targets.len(),
        "sources and targets must pair up"
    );
    let pairs: Vec<(&[u32], &[u32])> = sources
        .iter()
        .zip(targets)
        .map(|(source, target)| (source.as_ref(), target.as_ref()))
        .collect();
    for (index, (source, target)) in pairs.iter().enumerate() {
        for model in models {
            check_pair(model, source, target).map_err(|problem| DecodeError { index, problem })?;
        }
    }
    let longer = |(source, target): &(&[u32], &[u32])| source.len().max(target.len());
    let lengths: Vec<usize> = pairs.iter().map(longer).collect();
    let mut scores = vec![
        TargetScore {
            log_probs: Vec::new()
        };
        pairs.len()
    ];
    for batch in batches(&lengths, batch_tokens) {
        let pairs: Vec<_> = batch.iter().map(|&index| pairs[index]).collect();
        let log_probs = label_log_probs(models, &pairs, device);
        let rows = log_probs.chunks(log_probs.len() / batch.len().max(1));
        for ((&index, row), (_, target)) in batch.iter().zip(rows).zip(&pairs) {
            scores[index].log_probs = row[..target.len()].to_vec();
        }
    }
    Ok(scores)
}

fn check_pair<B: Backend>(
    model: &Transformer<B>,
    source: &[u32],
    target: &[u32],
) -> Result<(), SourceProblem> {
    let config = model.config();
    check_source(source, config)?;
    let length = target.len();
    if let Some(max_len) = config.max_len().filter(|&max_len| length > max_len) {
        return Err(SourceProblem::TargetTooLong { length, max_len });
    }
    let vocab_size = config.tgt_vocab_size;
    match unknown_token(target, vocab_size) {
        None => Ok(()),
        Some(token) => Err(SourceProblem::UnknownTarget { token, vocab_size }),
    }
}

/// `[batch, tgt_len]`, with anything where a target has ended; not empty.
fn label_log_probs<B: Backend>(
    models: &[&Transformer<B>],
    pairs: &[(&[u32], &[u32])],
    device: &B::Device,
) -> Vec<f32> {
    let config = models[0].config();
    let sources: Vec<&[u32]> = pairs.iter().map(|(source, _)| *source).collect();
    let labels: Vec<&[u32]> = pairs
        .iter()
        .map(|(_, target)| match target {
            // So that there is a column where all targets are of nothing.
            [] => std::slice::from_ref(&config.eos_id),
            target => target,
        })
        .collect();
    let tgt: Vec<Vec<u32>> = labels
        .iter()
        .map(|labels| [&[config.bos_id], &labels[..labels.len() - 1]].concat())
        .collect();
    let tgt = padded(&tgt, config.pad_id, device);
    let labels = padded(&labels, config.pad_id, device);
    let log_probs = models.iter().map(|model| {
        let memory = model.encode(padded(&sources, config.pad_id, device));
        let logits = model.generate(model.decode(tgt.clone(), &memory));
        log_probs_of(logits).gather(2, labels.clone().unsqueeze_dim(2))
    });
    to_host(ensemble(log_probs.collect()))
}

/// What each target position attends to, in every layer and head, for one pair.
///
/// The target begins with `<bos>` by itself, so that its first position is that of `<bos>` and
/// position t predicts token t.
///
/// # Shapes
/// - cross-attention of a layer: `[1, n_heads, tgt_len + 1, src_len]`
/// - self-attention of a layer: `[1, n_heads, tgt_len + 1, tgt_len + 1]`
///
/// # Errors
/// As [`score`].
pub fn attention_maps<B: Backend>(
    model: &Transformer<B>,
    source: &[u32],
    target: &[u32],
    device: &B::Device,
) -> Result<(Vec<Tensor<B, 4>>, DecoderMaps<B>), DecodeError> {
    let config = model.config();
    let target = [&[config.bos_id], target].concat();
    check_pair(model, source, &target).map_err(|problem| DecodeError { index: 0, problem })?;
    let mut encoder = Vec::new();
    let src = padded(&[source], config.pad_id, device);
    let memory = model.encode_with_maps(src, Some(&mut encoder));
    let mut decoder = DecoderMaps::default();
    let tgt = padded(&[target], config.pad_id, device);
    let mut cache = model.start_decoding(&memory);
    model.decode_next(tgt, &mut cache, Some(&mut decoder));
    Ok((encoder, decoder))
}
