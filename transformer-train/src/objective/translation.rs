//! The objective of the encoder–decoder: translate sentences, with teacher forcing.

use std::path::Path;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
#[cfg(feature = "text")]
use transformer_core::Tokenizers;
use transformer_core::decoding::{SpecialTokens, padded};
use transformer_core::formats::{WEIGHTS_FILE, load_weights};
use transformer_core::models::MixedPrecision;
use transformer_core::nn::ProductPrecision;
#[cfg(feature = "text")]
use transformer_core::text::TextError;
use transformer_core::{Transformer, TransformerConfig};

use crate::data::{ExampleProblem, TokenizedPair};
use crate::error::{TrainError, same_config};
use crate::objective::loss::{LossOptions, LossSums};
use crate::objective::{Labels, Objective, check_tokens};

/// A batch of pairs, padded with `<pad>`.
#[derive(Debug, Clone)]
pub struct PairBatch<B: Backend> {
    /// The sources, each ending in `<eos>` ([`SpecialTokens::end_source`]): `[batch, src_len]`.
    pub source: Tensor<B, 2, Int>,
    /// The decoder's input, starting with `<bos>`: `[batch, tgt_len]`.
    pub target: Tensor<B, 2, Int>,
    /// The labels at the target's positions, ending with `<eos>`.
    pub labels: Labels<B>,
}

impl<B: Backend> PairBatch<B> {
    /// Builds a batch of pairs.
    pub fn new(pairs: &[TokenizedPair], tokens: SpecialTokens, device: &B::Device) -> Self {
        let ending_in_eos = |sentence: &[u32]| [sentence, &[tokens.eos]].concat();
        let starting_with_bos = |sentence: &[u32]| [&[tokens.bos], sentence].concat();
        let rows = |row: &dyn Fn(&TokenizedPair) -> Vec<u32>| -> Vec<Vec<u32>> {
            pairs.iter().map(row).collect()
        };
        let source = rows(&|pair| tokens.end_source(&pair.source));
        let target = rows(&|pair| starting_with_bos(&pair.target));
        let labels = rows(&|pair| ending_in_eos(&pair.target));
        Self {
            source: padded(&source, tokens.pad, device),
            target: padded(&target, tokens.pad, device),
            labels: Labels::new(&labels, tokens.pad, device),
        }
    }
}

impl<B: Backend> Objective<B> for Transformer<B> {
    type Example = TokenizedPair;
    type Batch = PairBatch<B>;

    fn width(&self) -> Option<usize> {
        Some(self.config().d_model)
    }

    fn check(&self, pair: &TokenizedPair) -> Result<(), ExampleProblem> {
        let config = self.config();
        let source = config.special_tokens().end_source(&pair.source);
        let length = source.len().max(pair.tgt_len());
        if let Some(max_len) = config.max_len().filter(|&max_len| length > max_len) {
            return Err(ExampleProblem::TooLong { length, max_len });
        }
        check_tokens(&pair.source, config.src_vocab_size)?;
        check_tokens(&pair.target, config.tgt_vocab_size)
    }

    #[cfg(feature = "text")]
    fn check_tokenizers(&self, tokenizers: &Tokenizers) -> Result<(), TextError> {
        let config = self.config();
        let sizes = [config.src_vocab_size, config.tgt_vocab_size];
        tokenizers.check(sizes, config.special_tokens(), "")
    }

    fn prepare(mut self, precision: ProductPrecision) -> Option<Self> {
        self.set_precision(precision);
        Some(self)
    }

    fn batch(&self, pairs: &[TokenizedPair], device: &B::Device) -> PairBatch<B> {
        PairBatch::new(pairs, self.config().special_tokens(), device)
    }

    fn loss(&self, batch: PairBatch<B>, options: &LossOptions) -> LossSums<B> {
        let hidden = self.decode(batch.target, &self.encode(batch.source));
        let logits = |rows| self.generate(rows);
        batch.labels.loss(hidden, options.label_smoothing, logits)
    }

    fn save(&self, directory: &Path) -> Result<(), TrainError> {
        Ok(Transformer::save(self, directory)?)
    }

    fn restore(self, directory: &Path) -> Result<Self, TrainError> {
        let config = TransformerConfig::load(directory)?;
        same_config(directory, &config, self.config())?;
        Ok(load_weights(self, directory.join(WEIGHTS_FILE))?)
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;
    use transformer_core::nn::Positions;

    use super::*;

    #[test]
    fn as_many_tokens_as_positions_are_accepted_with_a_language_behind_eos_too() {
        let config = TransformerConfig {
            d_model: 8,
            n_heads: 2,
            d_ff: 8,
            n_encoder_layers: 1,
            n_decoder_layers: 1,
            positions: Positions::Learned { max_len: 5 },
            ..TransformerConfig::base(12)
        };
        let model = config.init::<NdArray>(1, &Default::default()).unwrap();
        let too_long = |source: &[u32], target: &[u32]| {
            let pair = TokenizedPair {
                source: source.to_vec(),
                target: target.to_vec(),
            };
            Objective::check(&model, &pair).is_err()
        };
        assert!(!too_long(&[3, 4, 5, 6], &[3, 4, 5, 6]));
        assert!(too_long(&[3, 4, 5, 6, 7], &[3]));
        assert!(too_long(&[3], &[3, 4, 5, 6, 7]));
        // `<eos>` is 2, and 9 is a language.
        assert!(!too_long(&[3, 4, 5, 2, 9], &[3]));
        assert!(too_long(&[3, 4, 5, 6, 2, 9], &[3]));
    }
}
