//! The attention of given targets to their sources.

use transformer_cpu::Threads;
use transformer_kernels::AttentionWeights;

use crate::decoding::batches::batches;
use crate::decoding::error::DecodeError;
use crate::decoding::next_token::NextToken;
use crate::decoding::request::SourceTarget;

/// The attention of each token of a target to each token of its source while it was predicted, averaged over layers and
/// heads.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CrossAttention {
    /// Number of source tokens, `<eos>` included.
    pub src_len: usize,
    /// The weights: `[tgt_len, src_len]`. Empty for a model without sources, or one that returns no attention.
    pub weights: Vec<f32>,
}

impl CrossAttention {
    /// The attention of a target token: `[src_len]`.
    ///
    /// # Panics
    /// When the target has no such token, or there are no weights.
    pub fn row(&self, token: usize) -> &[f32] {
        &self.weights[token * self.src_len..][..self.src_len]
    }
}

/// Computes the attention of given targets to their sources, with a model or an
/// [`Ensemble`](crate::decoding::Ensemble), packed or not. A batch has at most `batch_tokens` tokens on its longer
/// side, padding included, but at least one pair.
///
/// # Errors
/// When a source is empty, or a source or target is too long or has a token outside its vocabulary.
pub fn cross_attention<M: NextToken>(
    model: &M,
    pairs: &[SourceTarget],
    batch_tokens: usize,
) -> Result<Vec<CrossAttention>, DecodeError> {
    let tokens = model.vocabulary().special_tokens;
    let pairs: Vec<[Vec<u32>; 2]> = pairs.iter().map(|pair| pair.ended(tokens)).collect();
    for (index, [source, target]) in pairs.iter().enumerate() {
        let problem = |problem| DecodeError { index, problem };
        model.check_source(source).map_err(problem)?;
        model.check_target(target).map_err(problem)?;
    }
    let lengths = pairs
        .iter()
        .map(|[source, target]| source.len().max(target.len()));
    let lengths: Vec<usize> = lengths.collect();
    let mut found: Vec<CrossAttention> = pairs
        .iter()
        .map(|[source, _]| CrossAttention {
            src_len: source.len(),
            weights: Vec::new(),
        })
        .collect();
    for batch in batches(&lengths, batch_tokens) {
        let sources: Vec<&[u32]> = batch.iter().map(|&index| &pairs[index][0][..]).collect();
        let longest = batch.iter().map(|&index| pairs[index][1].len()).max();
        let mut last = vec![tokens.bos; batch.len()];
        let state = &mut model.start(&sources, Threads::All);
        for position in 0..longest.unwrap_or(0) {
            let next = model.next(&last, state, AttentionWeights::Return);
            let attention = next.attention.unwrap_or_default();
            let mut rows = attention.chunks((attention.len() / batch.len().max(1)).max(1));
            for (&index, last) in batch.iter().zip(&mut last) {
                let target = &pairs[index][1];
                let found = &mut found[index];
                // A row is as long as the longest source.
                if let (Some(row), true) = (rows.next(), position < target.len()) {
                    found.weights.extend(&row[..found.src_len]);
                }
                *last = target.get(position).copied().unwrap_or(tokens.pad);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::config::TransformerConfig;
    use crate::models::transformer::Transformer;
    use crate::packed::{PackedModel, PackedPrecision};
    use burn_ndarray::NdArray;

    /// Stepwise, packed and in batches, the attention is the mean of the maps of the whole pair.
    #[test]
    fn the_attention_is_the_mean_of_the_maps() {
        let config = TransformerConfig {
            d_model: 16,
            n_heads: 4,
            d_ff: 16,
            n_encoder_layers: 2,
            n_decoder_layers: 3,
            ..TransformerConfig::base(11)
        };
        let model: Transformer<NdArray> = config.init(3, &Default::default()).unwrap();
        let pairs = [
            SourceTarget::unfinished([5, 7, 4], [6, 8]),
            SourceTarget::unfinished([9], [4, 5, 6, 10]),
            SourceTarget::new([4, 4, 8, 8, 5], []),
        ];
        let packed = PackedModel::new(model.clone(), PackedPrecision::F32);
        let of_plain = cross_attention(&model, &pairs, 100).unwrap();
        let of_packed = cross_attention(&packed, &pairs, 100).unwrap();
        for (index, pair) in pairs.iter().enumerate() {
            let maps = model.attention_maps(pair).unwrap();
            let maps: burn::tensor::Tensor<NdArray, 5> = burn::tensor::Tensor::stack(maps.cross, 0);
            let mean = maps.mean_dim(2).mean_dim(0).into_data();
            let expected: Vec<f32> = mean.iter().collect();
            for found in [&of_plain[index], &of_packed[index]] {
                assert_eq!(found.weights.len(), expected.len());
                for (found, expected) in found.weights.iter().zip(&expected) {
                    assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
                }
            }
            assert_eq!(of_plain[index].row(0).len(), of_plain[index].src_len);
        }
        let empty = cross_attention(&model, &[SourceTarget::exact([], [4])], 100);
        assert_eq!(empty.unwrap_err().index, 0);
    }
}
