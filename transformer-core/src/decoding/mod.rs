//! From a source to its targets.
//!
//! One loop over the key/value cache ([`Search`]) serves every strategy: greedy decoding is beam
//! search with a beam of one, and a sample is a beam that draws its next token.

mod batches;
mod beam;
mod forced;
mod options;
mod rules;
mod sampling;
mod search;
mod stepper;

pub use batches::{padded, source_batch};
pub use forced::{TargetScore, attention_maps, score};
pub use options::{DecodeOptions, LengthPenalty, MaxLength, Sampling, Strategy};
pub use search::{Search, greedy};

/// A target that decoding found for a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The target, without `<bos>` and `<eos>`.
    pub tokens: Vec<u32>,
    /// Whether it ended in `<eos>` rather than at the length limit.
    pub finished: bool,
    /// The model's log-probability of the tokens, and of `<eos>` where it ended in it.
    pub log_prob: f64,
    /// What hypotheses are ranked by: the log-probability after the penalties for length and
    /// coverage.
    pub score: f64,
}
