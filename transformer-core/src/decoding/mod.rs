//! Decoding: greedy, beam search, sampling, and scoring (§6.1).
//!
//! One loop over the next token ([`Search`]) serves every strategy: greedy decoding is a beam search of size 1, and a
//! sample is a beam whose next token is drawn. The loop works with any model that implements [`NextToken`].
//!
//! ```
//! use burn_ndarray::NdArray;
//! use transformer_core::TransformerConfig;
//! use transformer_core::decoding::{DecodeOptions, Request, Sampling, Search};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = TransformerConfig::notebook_mini(1000).init::<NdArray>(42, &Default::default())?;
//! let request = [Request::new([5, 3, 7])];
//!
//! let options = DecodeOptions { n_best: 2, ..DecodeOptions::beam(4) };
//! let found = Search::new(&model, options)?.run(&request)?;
//! assert!(found[0][0].score >= found[0][1].score);
//!
//! let options = DecodeOptions::sample(Sampling { temperature: 0.8, ..Sampling::default() });
//! let found = Search::new(&model, options)?.run(&request)?;
//! println!("{:?}", found[0][0].tokens);
//! # Ok(())
//! # }
//! ```

mod batch_search;
mod batches;
mod beam;
mod candidates;
mod cross_attention;
mod error;
mod next_token;
mod options;
mod request;
mod rules;
mod sampling;
mod scoring;
mod search;
mod shortlist;
mod side_by_side;
mod targets;
mod teacher_forcing;

pub use crate::special_tokens::{SPECIAL_TOKENS, SpecialTokens};
pub use batches::padded;
pub(crate) use batches::to_host;
pub(crate) use batches::{column, unknown_token};
pub use cross_attention::{CrossAttention, cross_attention};
pub use error::{DecodeError, DecodeOptionsError, RequestProblem};
pub(crate) use next_token::check_batch;
pub use next_token::{Ensemble, Next, NextToken, Vocabulary};
pub use options::{DecodeOptions, LengthPenalty, MaxLength, Sampling, Strategy};
pub use request::{Request, SourceTarget};
pub use scoring::{TargetScore, score};
pub use search::{Search, greedy};
pub use shortlist::{Shortlist, ShortlistError};
pub(crate) use teacher_forcing::{label_log_probs, log_probs_without, next_tokens, read_before};
pub use transformer_cpu::Threads;

/// A target that decoding found for a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Hypothesis {
    /// The target, without `<bos>` and `<eos>`.
    pub tokens: Vec<u32>,
    /// Whether it ended in `<eos>` rather than at the length limit.
    pub finished: bool,
    /// The model's log-probability of the tokens, including `<eos>` if the target ended in it; of those after a
    /// [prompt](Request::prompt). −∞ if the model excludes a token that was forced or is in the prefix.
    pub log_prob: f64,
    /// The score that ranks hypotheses: the log-probability after the length and coverage penalties. Tokens forced by
    /// the options count as certain, as do tokens of a prefix that the model excludes and, with
    /// [`DecodeOptions::renormalize`], all tokens of a prefix.
    pub score: f64,
}
