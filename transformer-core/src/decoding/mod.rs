//! From a request to its targets.
//!
//! One loop over a model's next tokens ([`Search`]) serves every strategy: greedy decoding is beam
//! search with a beam of one, and a sample is a beam that draws its next token. The loop depends on
//! the trait [`NextToken`], not on any model.

mod batch_search;
mod batches;
mod beam;
mod error;
mod next_token;
mod options;
mod request;
mod rules;
mod sampling;
mod scoring;
mod search;
mod side_by_side;
mod targets;
mod teacher_forcing;

pub use crate::special_tokens::{SPECIAL_TOKENS, SpecialTokens};
pub use batches::padded;
pub(crate) use batches::to_host;
pub(crate) use batches::{column, unknown_token};
pub use error::{DecodeError, DecodeOptionsError, RequestProblem};
pub(crate) use next_token::check_batch;
pub use next_token::{Ensemble, Next, NextToken, Vocabulary};
pub use options::{DecodeOptions, LengthPenalty, MaxLength, Sampling, Strategy};
pub use request::{Request, SourceTarget};
pub use scoring::{TargetScore, score};
pub use search::{Search, greedy};
pub(crate) use teacher_forcing::{label_log_probs, log_probs_without, read_before};
pub use transformer_cpu::Threads;

/// A target that decoding found for a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Hypothesis {
    /// The target, without `<bos>` and `<eos>`.
    pub tokens: Vec<u32>,
    /// Whether it ended in `<eos>` rather than at the length limit.
    pub finished: bool,
    /// The model's log-probability of the tokens, and of `<eos>` where it ended in it. −∞ if the model excludes one that
    /// was forced, or that the prefix has.
    pub log_prob: f64,
    /// The rank of the hypothesis: its log-probability after the penalties for length and
    /// coverage. Tokens that the options force count as certain, and so do those of a prefix that the model excludes;
    /// with [`DecodeOptions::renormalize`], all of a prefix do.
    pub score: f64,
}
