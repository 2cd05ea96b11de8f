//! A language model's directory of Hugging Face's, beside the results that Hugging Face computes from it.
//!
//! | file | has |
//! |---|---|
//! | `expected.json` | texts, the tokens of each, and what greedy decoding and a beam of four make of each as a prompt |
//! | `io.safetensors` | `input_ids` and `logits` of one batch without padding |

use std::path::{Path, PathBuf};

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use transformer_core::decoding::{Hypothesis, LengthPenalty, MaxLength, NextToken, padded};
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, LanguageModel, PackedModel, Request, Search, TextGenerator, Tokenizers,
};

use super::compare::OUTPUT_BOUND;
use super::expected::{Expected, Translation};
use super::io::Io;
use super::pretrained::{BEAM, TIE, count};
use super::report::{Report, Row, difference};
use super::{IO_FILE, Result};

/// A directory of a language model, and results computed from it.
pub(super) struct OfLanguageModel {
    directory: PathBuf,
    expected: Expected,
    io: Io,
    /// Largest difference of two log-probabilities that are equal up to rounding.
    pub tie: f64,
}

impl OfLanguageModel {
    /// Reads the results expected of a directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(IO_FILE);
        let io = Io::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            directory: directory.to_owned(),
            expected: Expected::read(directory)?,
            io,
            tie: TIE,
        })
    }

    /// Measures how far tokens, logits and texts are from those expected.
    pub fn compare<B: Backend>(&self, device: &B::Device) -> Result<Report> {
        let model = LanguageModel::<B>::load(&self.directory, device)?;
        let tokenizers = Tokenizers::load(&self.directory)?;
        let mut rows = vec![self.tokens(&tokenizers)?, self.logits(&model)?];
        rows.push(self.greedy("greedy", &model, &tokenizers)?);
        let packed = PackedModel::of_language_model(model.clone(), PackedPrecision::F32);
        rows.push(self.greedy("greedy, packed", &packed, &tokenizers)?);
        rows.push(self.beam("beam 4", &model)?);
        rows.push(self.beam("beam 4, packed", &packed)?);
        Ok(Report {
            title: self.directory.display().to_string(),
            rows,
            notes: Vec::new(),
        })
    }

    /// The number of texts with other tokens than expected.
    fn tokens(&self, tokenizers: &Tokenizers) -> Result<Row> {
        let (mut wrong, mut compared) = (0, 0);
        for sentence in self.expected.texts() {
            let ids = tokenizers.target().encode(&sentence.text)?;
            wrong += usize::from(ids != sentence.ids);
            compared += 1;
        }
        Ok(count("token ids", wrong, compared))
    }

    fn logits<B: Backend>(&self, model: &LanguageModel<B>) -> Result<Row> {
        let config = model.config();
        let rows = self.io.tokens("input_ids", config.tgt_vocab_size)?;
        let (expected, shape) = self.io.of_rank::<3>("logits", DType::F32)?;
        let tokens = padded(&rows, config.pad_id, &model.device());
        let found = model.forward(tokens);
        if found.dims() != shape {
            return Err(format!("`logits` is {shape:?}, not {:?}", found.dims()).into());
        }
        let found: Vec<f64> = found.into_data().iter().collect();
        let error = difference(found.into_iter(), expected.iter());
        Ok(Row::new("logits", error, OUTPUT_BOUND))
    }

    /// The number of prompts that a model continues greedily to other tokens or texts than Hugging Face's.
    fn greedy<M: NextToken>(
        &self,
        quantity: &str,
        model: &M,
        tokenizers: &Tokenizers,
    ) -> Result<Row> {
        let generator = TextGenerator::new(model, tokenizers.clone())?;
        let generator = generator.with_options(self.options(DecodeOptions::greedy()))?;
        let texts: Vec<&str> = self.expected.texts().map(|text| &text.text[..]).collect();
        let found = generator.generate(&texts)?.into_iter().flatten();
        let mut wrong = 0;
        for (sentence, found) in self.expected.texts().zip(found) {
            let Translation { ids, text, .. } = &sentence.beam1;
            let is_same =
                ended(model, &found.hypothesis) == *ids && Some(&found.text) == text.as_ref();
            wrong += usize::from(!is_same);
        }
        Ok(count(quantity, wrong, texts.len()))
    }

    /// The number of prompts that a beam continues neither to Hugging Face's tokens, with their score, nor to others
    /// that score as high.
    fn beam(&self, quantity: &str, model: &impl NextToken) -> Result<Row> {
        let options = DecodeOptions {
            length_penalty: LengthPenalty::Power(1.0),
            early_stopping: false,
            ..DecodeOptions::beam(BEAM)
        };
        let search = Search::new(model, self.options(options))?;
        let prompts = self.expected.texts();
        let prompts: Vec<_> = prompts
            .map(|text| Request::prompt(text.ids.clone()))
            .collect();
        let found = search.run(&prompts)?.into_iter().flatten();
        let mut wrong = 0;
        for (sentence, found) in self.expected.texts().zip(found) {
            let score = sentence.beam4.score.ok_or("a beam without `score`")?;
            let is_right = match ended(model, &found) == sentence.beam4.ids {
                true => (found.score - score).abs() <= self.tie,
                false => found.score >= score - self.tie,
            };
            wrong += usize::from(!is_right);
        }
        Ok(count(quantity, wrong, prompts.len()))
    }

    fn options(&self, options: DecodeOptions) -> DecodeOptions {
        DecodeOptions {
            max_length: MaxLength::SourcePlus(self.expected.limit),
            n_best: 1,
            ..options
        }
    }
}

/// The tokens of a hypothesis, with the one that ends it.
fn ended(model: &impl NextToken, hypothesis: &Hypothesis) -> Vec<u32> {
    let eos = model.vocabulary().special_tokens.eos;
    let mut tokens = hypothesis.tokens.clone();
    tokens.extend(hypothesis.finished.then_some(eos));
    tokens
}
