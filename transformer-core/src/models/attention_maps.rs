//! The attention weights of a sentence pair, for pictures and alignments.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_kernels::AttentionWeights;

use crate::decoding::{DecodeError, NextToken, SourceTarget, padded, read_before};
use crate::models::transformer::Transformer;

/// The attention weights of a sentence pair, per layer, and its tokens.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttentionMaps<B: Backend> {
    /// The source as the encoder reads it, including an appended `<eos>`: `src_len` tokens.
    pub source: Vec<u32>,
    /// The target as the decoder reads it, with `<bos>` in front and without its last token: `tgt_len` tokens.
    pub target: Vec<u32>,
    /// The encoder's self-attention: `[1, n_heads, src_len, src_len]` per layer.
    pub encoder: Vec<Tensor<B, 4>>,
    /// The decoder's self-attention: `[1, n_heads, tgt_len, tgt_len]` per layer. Empty if its layers have a recurrence
    /// instead.
    pub decoder: Vec<Tensor<B, 4>>,
    /// The decoder's cross-attention: `[1, n_heads, tgt_len, src_len]` per layer.
    pub cross: Vec<Tensor<B, 4>>,
}

impl<B: Backend> Transformer<B> {
    /// The attention weights of a sentence pair, in every layer and head.
    ///
    /// The decoder reads `<bos>` and the target without its last token, so that row t predicts token t. On a backend with
    /// gradients (`Autodiff`), dropout is active: use `model.valid()` instead.
    ///
    /// # Errors
    /// When the source is empty, or either is too long or has a token outside its vocabulary.
    pub fn attention_maps(&self, pair: &SourceTarget) -> Result<AttentionMaps<B>, DecodeError> {
        let config = self.config();
        let [source, target] = pair.ended(config.special_tokens());
        config
            .check_source(&source)
            .and_then(|()| self.check_target(&target))
            .map_err(|problem| DecodeError { index: 0, problem })?;
        let target = read_before(config.bos_id, &target);
        let rows = |tokens: &[u32]| padded(&[tokens], config.pad_id, &self.device());
        let encoded = self.encode_with(rows(&source), AttentionWeights::Return);
        let mut cache = self.start_decoding(&encoded.memory);
        let decoded = self.decode_next(rows(&target), &mut cache, AttentionWeights::Return);
        Ok(AttentionMaps {
            source,
            target,
            encoder: encoded.self_attention,
            decoder: decoded.self_attention,
            cross: decoded.cross_attention,
        })
    }
}
