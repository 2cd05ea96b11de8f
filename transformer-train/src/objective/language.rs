//! The objective of a language model: predict each token of a sequence from those before it.

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
use transformer_core::{LanguageModel, TransformerConfig};

use crate::data::{Example, ExampleProblem};
use crate::error::{TrainError, same_config};
use crate::objective::loss::{LossOptions, LossSums};
use crate::objective::{Labels, Objective, check_tokens};

/// A batch of sequences, filled with `<pad>` behind their ends.
#[derive(Debug, Clone)]
pub struct SequenceBatch<B: Backend> {
    /// The model's input, starting with `<bos>`: `[batch, len]`.
    pub tokens: Tensor<B, 2, Int>,
    /// The labels at the input's positions, ending with `<eos>`.
    pub labels: Labels<B>,
}

impl<B: Backend> SequenceBatch<B> {
    /// Builds a batch of sequences, which are given without `<bos>` and `<eos>`.
    pub fn new(sequences: &[Vec<u32>], tokens: SpecialTokens, device: &B::Device) -> Self {
        let read = sequences
            .iter()
            .map(|sequence| [&[tokens.bos], &sequence[..]].concat());
        let labels = sequences
            .iter()
            .map(|sequence| [&sequence[..], &[tokens.eos]].concat());
        let (read, labels): (Vec<_>, Vec<_>) = (read.collect(), labels.collect());
        Self {
            tokens: padded(&read, tokens.pad, device),
            labels: Labels::new(&labels, tokens.padding(), device),
        }
    }
}

impl<B: Backend> Objective<B> for LanguageModel<B> {
    type Example = Vec<u32>;
    type Batch = SequenceBatch<B>;

    fn width(&self) -> Option<usize> {
        Some(self.config().d_model)
    }

    fn check(&self, sequence: &Vec<u32>) -> Result<(), ExampleProblem> {
        let config = self.config();
        let length = sequence.lengths().longest();
        if let Some(max_len) = config.max_len().filter(|&max_len| length > max_len) {
            return Err(ExampleProblem::TooLong { length, max_len });
        }
        check_tokens(sequence, config.tgt_vocab_size)
    }

    #[cfg(feature = "text")]
    fn check_tokenizers(&self, tokenizers: &Tokenizers) -> Result<(), TextError> {
        let config = self.config();
        tokenizers.check([config.tgt_vocab_size; 2], config.special_tokens(), "")
    }

    fn prepare(mut self, precision: ProductPrecision) -> Option<Self> {
        self.set_precision(precision);
        Some(self)
    }

    fn batch(&self, sequences: &[Vec<u32>], device: &B::Device) -> SequenceBatch<B> {
        SequenceBatch::new(sequences, self.config().special_tokens(), device)
    }

    fn loss(&self, batch: SequenceBatch<B>, options: &LossOptions) -> LossSums<B> {
        let hidden = self.decode(batch.tokens);
        let logits = |rows| self.generate(rows);
        batch.labels.loss(hidden, options.label_smoothing, logits)
    }

    fn save(&self, directory: &Path) -> Result<(), TrainError> {
        Ok(LanguageModel::save(self, directory)?)
    }

    fn restore(self, directory: &Path) -> Result<Self, TrainError> {
        let config = TransformerConfig::load_language_model(directory)?;
        same_config(directory, &config, self.config())?;
        Ok(load_weights(self, directory.join(WEIGHTS_FILE))?)
    }
}
