//! The models of an ensemble, one token at a time.

use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

use super::batches::padded;
use crate::cache::DecoderCache;
use crate::decoder::DecoderMaps;
use crate::transformer::Transformer;

/// Decodes a batch of sources with every model of an ensemble. Each source has one row, or as many
/// as there are hypotheses of it: rows of one source stand together.
pub(super) struct Stepper<'a, B: Backend> {
    models: &'a [&'a Transformer<B>],
    caches: Vec<DecoderCache<B>>,
    device: &'a B::Device,
}

/// What the models say about the next tokens.
pub(super) struct Step {
    /// `[rows, tgt_vocab_size]`, one row after the other.
    pub log_probs: Vec<f32>,
    /// `[rows, src_len]`, how much the last token attends to each source token, averaged over
    /// models, layers and heads; empty unless asked for.
    pub attention: Vec<f32>,
}

impl<'a, B: Backend> Stepper<'a, B> {
    /// Reads the sources.
    pub fn new(
        models: &'a [&'a Transformer<B>],
        sources: &[&[u32]],
        device: &'a B::Device,
    ) -> Self {
        let caches = models.iter().map(|model| {
            let src = padded(sources, model.config().pad_id, device);
            model.start_decoding(&model.encode(src))
        });
        Self {
            models,
            caches: caches.collect(),
            device,
        }
    }

    /// Appends a token to each row.
    pub fn step(&mut self, last: &[u32], with_attention: bool) -> Step {
        let column: Vec<[u32; 1]> = last.iter().map(|&token| [token]).collect();
        let mut log_probs = Vec::new();
        let mut attention = Vec::new();
        for (model, cache) in self.models.iter().zip(&mut self.caches) {
            let tokens = padded(&column, model.config().pad_id, self.device);
            let mut maps = with_attention.then(DecoderMaps::default);
            let hidden = model.decode_next(tokens, cache, maps.as_mut());
            log_probs.push(log_probs_of(model.generate(hidden).squeeze_dim::<2>(1)));
            attention.extend(maps.map(average));
        }
        Step {
            log_probs: to_host(ensemble(log_probs)),
            attention: match attention.is_empty() {
                true => Vec::new(),
                false => to_host(Tensor::cat(attention, 0).mean_dim(0)),
            },
        }
    }

    /// Keeps the given sources alone, with the given rows.
    ///
    /// `rows` are places among all rows so far, those of a source together.
    pub fn select(&mut self, sources: &[usize], rows: &[usize]) {
        for cache in &mut self.caches {
            cache.select(sources, rows);
        }
    }
}

/// Over the last dimension, in 32 bits.
pub(super) fn log_probs_of<B: Backend, const D: usize>(logits: Tensor<B, D>) -> Tensor<B, D> {
    let logits = logits.cast(DType::F32);
    transformer_kernels::log_softmax(&logits).unwrap_or_else(|| log_softmax(logits, D - 1))
}

/// The logarithm of the mean of probabilities.
pub(super) fn ensemble<B: Backend, const D: usize>(
    mut log_probs: Vec<Tensor<B, D>>,
) -> Tensor<B, D> {
    let count = log_probs.len() as f64;
    let first = log_probs.remove(0);
    let sum = log_probs.into_iter().fold(first, |sum, next| {
        // ln(e^a + e^b) = max + ln(1 + e^(min - max))
        let most = sum.clone().max_pair(next.clone());
        most + (-(sum - next).abs()).exp().log1p()
    });
    if count > 1.0 { sum - count.ln() } else { sum }
}

/// `[1, rows · src_len]`
fn average<B: Backend>(maps: DecoderMaps<B>) -> Tensor<B, 2> {
    let layers = maps.cross_attention;
    // [layers, rows, n_heads, tgt_len, src_len]
    let all: Tensor<B, 5> = Tensor::stack(layers, 0);
    let all = all.cast(DType::F32).mean_dim(2).mean_dim(0);
    let [_, rows, _, _, src_len] = all.dims();
    all.reshape([1, rows * src_len])
}

pub(super) fn to_host<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.into_vec().expect("converted to f32")
}
