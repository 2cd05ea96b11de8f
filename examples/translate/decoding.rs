//! Flags of everything that translates.

use clap::Args;
use transformer_core::{DecodeOptions, LengthPenalty, MaxLength, Sampling, Strategy};

/// How translations are searched for.
#[derive(Debug, Clone, Args)]
pub struct Decoding {
    /// Hypotheses kept at each step; 1 takes the most likely token every time
    #[arg(long, value_name = "N", default_value_t = 4)]
    beam: usize,
    /// Power A of ((5 + length) / 6)^A, which log-probabilities are divided by, or `average`, which
    /// divides them by the length
    #[arg(allow_negative_numbers = true, long, value_name = "A", default_value = "0.6", value_parser = length_penalty)]
    length_penalty: LengthPenalty,
    /// Weight of the penalty for source tokens that nothing attends to
    #[arg(
        allow_negative_numbers = true,
        long,
        value_name = "B",
        default_value_t = 0.0
    )]
    coverage_penalty: f64,
    /// Draw each token by its probability instead of searching; --seed seeds it
    #[arg(long, conflicts_with_all = ["beam", "length_penalty", "coverage_penalty"])]
    sample: bool,
    /// Divisor of log-probabilities before a token is drawn
    #[arg(
        allow_negative_numbers = true,
        long,
        value_name = "T",
        default_value_t = 1.0,
        requires = "sample"
    )]
    temperature: f64,
    /// Draw from the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0, requires = "sample")]
    top_k: usize,
    /// Draw from the most likely tokens that together have probability P
    #[arg(
        allow_negative_numbers = true,
        long,
        value_name = "P",
        default_value_t = 1.0,
        requires = "sample"
    )]
    top_p: f64,
    /// Tokens that a translation must have, within --max-length
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_length: usize,
    /// Tokens that a translation may have [default: 50 more than the sentence]
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,
    /// Never the same N tokens in a row twice; 0 for no such rule
    #[arg(long, value_name = "N", default_value_t = 0)]
    no_repeat_ngram: usize,
    /// Factor of the log-probability of tokens that a translation has already
    #[arg(
        allow_negative_numbers = true,
        long,
        value_name = "R",
        default_value_t = 1.0
    )]
    repetition_penalty: f64,
    /// Source tokens, padding included, that are translated side by side
    #[arg(long, value_name = "N", default_value_t = 2048)]
    batch_tokens: usize,
    /// Tokens that a sentence may have; memory grows by their square
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_source_length: usize,
    /// Of --sample
    #[arg(skip)]
    pub seed: u64,
}

impl Decoding {
    pub fn options(&self, n_best: usize) -> DecodeOptions {
        DecodeOptions {
            strategy: if self.sample {
                Strategy::Sample(Sampling {
                    temperature: self.temperature,
                    top_k: self.top_k,
                    top_p: self.top_p,
                    seed: self.seed,
                })
            } else {
                Strategy::Beam { size: self.beam }
            },
            n_best,
            length_penalty: if self.sample {
                LengthPenalty::None
            } else {
                self.length_penalty
            },
            coverage_penalty: self.coverage_penalty,
            max_length: self
                .max_length
                .map_or(MaxLength::default(), MaxLength::Tokens),
            min_length: self.min_length,
            banned_tokens: Vec::new(),
            no_repeat_ngram: self.no_repeat_ngram,
            repetition_penalty: self.repetition_penalty,
            batch_tokens: self.batch_tokens,
            max_src_len: self.max_source_length,
        }
    }

    /// Whether tokens are certain as soon as they are decoded.
    pub fn is_greedy(&self) -> bool {
        self.sample || self.beam == 1
    }
}

fn length_penalty(text: &str) -> Result<LengthPenalty, String> {
    match text {
        "average" => Ok(LengthPenalty::AVERAGE),
        number => match number.parse() {
            Ok(alpha) => Ok(LengthPenalty::Paper(alpha)),
            Err(_) => Err("neither a number nor `average`".into()),
        },
    }
}
