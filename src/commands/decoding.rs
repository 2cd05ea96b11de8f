//! Flags of the commands that translate.

use clap::Args;
use transformer_core::{DecodeOptions, LengthPenalty, MaxLength, Sampling, Strategy};

use super::options_error;

/// The search for translations.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Decoding")]
pub struct Decoding {
    /// Hypotheses kept at each step; 1 is greedy decoding
    #[arg(long, value_name = "N", default_value_t = 4)]
    beam: usize,
    /// Power A of the length penalty ((5 + length) / 6)^A, which log-probabilities are divided by;
    /// `average` divides them by the length
    #[arg(long, value_name = "A", default_value = "0.6", value_parser = length_penalty, allow_negative_numbers = true)]
    length_penalty: LengthPenalty,
    /// Weight of the penalty for source tokens that no target token attends to
    #[arg(
        long,
        value_name = "B",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    coverage_penalty: f64,
    /// Draw each token by its probability instead of searching; --seed seeds it
    #[arg(long, conflicts_with_all = ["beam", "length_penalty", "coverage_penalty"])]
    sample: bool,
    /// Divisor of log-probabilities before a token is drawn
    #[arg(
        long,
        value_name = "T",
        default_value_t = 1.0,
        requires = "sample",
        allow_negative_numbers = true
    )]
    temperature: f64,
    /// Draw from the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0, requires = "sample")]
    top_k: usize,
    /// Draw from the most likely tokens that together have probability P
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        requires = "sample",
        allow_negative_numbers = true
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
        long,
        value_name = "R",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    repetition_penalty: f64,
    /// Source tokens, padding included, that are translated side by side
    #[arg(long, value_name = "N", default_value_t = 2048)]
    batch_tokens: usize,
    /// Tokens that a sentence may have; memory grows by their square
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_source_length: usize,
}

impl Decoding {
    /// The library's options.
    ///
    /// # Errors
    /// The first flag that is out of range.
    pub fn options(&self, n_best: usize, seed: u64) -> Result<DecodeOptions, String> {
        let strategy = match self.sample {
            true => Strategy::Sample(Sampling {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                seed,
            }),
            false => Strategy::Beam { size: self.beam },
        };
        let options = DecodeOptions {
            strategy,
            n_best,
            length_penalty: match self.sample {
                true => LengthPenalty::None,
                false => self.length_penalty,
            },
            coverage_penalty: self.coverage_penalty,
            max_length: self
                .max_length
                .map_or(MaxLength::default(), MaxLength::Tokens),
            min_length: self.min_length,
            banned_tokens: Vec::new(),
            forced_first: None,
            forced_last: false,
            no_repeat_ngram: self.no_repeat_ngram,
            repetition_penalty: self.repetition_penalty,
            batch_tokens: self.batch_tokens,
            max_src_len: self.max_source_length,
        };
        self.check_pairs_of_flags(n_best)?;
        options.validate().map_err(options_error)?;
        Ok(options)
    }

    /// Flags that bound each other.
    fn check_pairs_of_flags(&self, n_best: usize) -> Result<(), String> {
        if !self.sample && self.beam > 0 && n_best > self.beam {
            return Err(format!("--n-best {n_best} is above --beam {}", self.beam));
        }
        match self.max_length {
            Some(max_length) if self.min_length > max_length => Err(format!(
                "--min-length {} is above --max-length {max_length}",
                self.min_length
            )),
            _ => Ok(()),
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
