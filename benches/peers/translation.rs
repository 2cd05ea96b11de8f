//! Translation of text lines, all at once or one sentence after another; and the latency of tokens.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::backend::Backend;
use clap::ValueEnum;
use serde::Deserialize;
use transformer_core::decoding::{LengthPenalty, MaxLength, NextToken};
use transformer_core::packed::PackedPrecision;
use transformer_core::{DecodeOptions, ModelDirectory, Transformer, Translator};

use super::Result;
use super::turns::{Outcome, Turns};

/// Flags of `translate`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Directory of the model
    #[arg(long)]
    model: Option<PathBuf>,
    /// How the weights are stored
    #[arg(long, value_enum, default_value_t = Weights::F32)]
    weights: Weights,
    /// File for the translations of the last turn
    #[arg(long)]
    translations: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Weights {
    /// The backend's tensors
    Plain,
    /// Prepacked weights in f32
    F32,
    /// Prepacked weights in 8 bits
    Int8,
}

/// The work, from translate.json.
#[derive(Debug, Deserialize)]
pub struct TextWork {
    measured: Measured,
    sentences: Vec<String>,
    beam: usize,
    /// Whether sentences are translated one after another.
    alone: bool,
    min_length: usize,
    max_length: usize,
    /// Number of tokens over which the time per further token is measured.
    latency_length: usize,
    /// Number of sentences translated before the first turn.
    warm_up: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Measured {
    /// Time to translate the text.
    Text,
    /// Latency of tokens.
    Latency,
}

impl TextWork {
    /// Translates in each turn, or measures the latency of tokens.
    pub fn run<B: Backend>(&self, flags: Flags, device: &B::Device, mut turns: Turns) -> Result {
        turns.translations = flags.translations;
        let directories = [ModelDirectory::open(
            flags.model.ok_or("--model is missing")?,
        )?];
        let precision = match flags.weights {
            Weights::Plain => {
                let translator = Translator::<Transformer<B>>::of(&directories, device)?;
                return self.run_with(&translator, turns);
            }
            Weights::F32 => PackedPrecision::F32,
            Weights::Int8 => PackedPrecision::Int8,
        };
        self.run_with(&Translator::packed_of(&directories, precision)?, turns)
    }

    fn run_with<M: NextToken>(&self, translator: &Translator<M>, turns: Turns) -> Result {
        let search = |min_length, max_length| {
            let tokenizers = translator.tokenizers().clone();
            let search = Translator::new(translator.model(), tokenizers)?;
            search.with_options(self.options(min_length, max_length))
        };
        let warm_up = &self.sentences[..self.warm_up.min(self.sentences.len())];
        match self.measured {
            Measured::Text => {
                let search = search(self.min_length, self.max_length)?;
                self.translate(&search, warm_up)?;
                turns.run(|| self.translate(&search, &self.sentences))
            }
            Measured::Latency => {
                let first = search(1, 1)?;
                let all = search(self.latency_length, self.latency_length)?;
                latencies(&first, &all, warm_up)?;
                turns.run(|| latencies(&first, &all, &self.sentences))
            }
        }
    }

    fn options(&self, min_length: usize, max_length: usize) -> DecodeOptions {
        DecodeOptions {
            length_penalty: LengthPenalty::AVERAGE,
            min_length,
            max_length: MaxLength::Tokens(max_length),
            ..DecodeOptions::beam(self.beam)
        }
    }

    fn translate<M: NextToken>(
        &self,
        search: &Translator<M>,
        sentences: &[String],
    ) -> Result<Outcome> {
        let at_a_time = match self.alone {
            true => 1,
            false => sentences.len().max(1),
        };
        let mut outcome = Outcome::default();
        for sentences in sentences.chunks(at_a_time) {
            for found in search.translate_n_best(sentences, "")? {
                // One line per sentence; an empty sentence has no translation.
                let best = found.into_iter().next();
                outcome.tokens += best.as_ref().map_or(0, |best| best.hypothesis.tokens.len());
                let text = best.map_or(String::new(), |best| best.text);
                outcome.translations.push(text);
            }
        }
        Ok(outcome)
    }
}

/// Per sentence, the seconds to the first token and to all tokens.
fn latencies<M: NextToken>(
    first: &Translator<M>,
    all: &Translator<M>,
    sentences: &[String],
) -> Result<Outcome> {
    let seconds = |search: &Translator<M>, sentence: &str| -> Result<f64> {
        let start = Instant::now();
        search.translate(sentence)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let mut outcome = Outcome::default();
    for sentence in sentences {
        let latency = [seconds(first, sentence)?, seconds(all, sentence)?];
        outcome.latencies.push(latency);
    }
    Ok(outcome)
}
