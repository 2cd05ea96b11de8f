//! Options of decoding.

use std::sync::Arc;

use crate::decoding::error::DecodeOptionsError;
use crate::decoding::shortlist::Shortlist;

/// The strategy of decoding, its limits, and rules for tokens.
///
/// ```
/// use transformer_core::DecodeOptions;
/// use transformer_core::decoding::LengthPenalty;
///
/// // The paper's: a beam of 4, and ((5 + |Y|) / 6)^0.6.
/// let options = DecodeOptions::beam(4);
/// assert_eq!(options.length_penalty, LengthPenalty::Paper(0.6));
/// // No trigram may repeat, and the four best targets per source are returned.
/// let options = DecodeOptions { no_repeat_ngram: 3, n_best: 4, ..options };
/// # assert!(options.validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DecodeOptions {
    /// Beam search or sampling.
    pub strategy: Strategy,
    /// Targets returned per source: the best of the beam, or the number of samples.
    pub n_best: usize,
    /// The length penalty, by which a hypothesis's log-probability is divided.
    pub length_penalty: LengthPenalty,
    /// β of the coverage penalty `β Σ_i ln min(Σ_j a_ij, 1)`, which is added to the score; `a_ij` is the
    /// attention of target token j to source token i, averaged over layers and heads. 0 for none. It has no effect with a
    /// model that returns no attention ([`Next::attention`](crate::decoding::Next::attention)).
    pub coverage_penalty: f64,
    /// The maximum length, at which a target without `<eos>` is cut off.
    pub max_length: MaxLength,
    /// The minimum length of a target in tokens, without `<eos>`. It overrides a smaller `MaxLength::SourcePlus`. With
    /// `forced_last`, `<eos>` has the last place, also where the minimum equals the maximum.
    pub min_length: usize,
    /// Whether a beam search with a length or coverage penalty ends for a source as soon as it has found as many
    /// targets as the beam size, as in CTranslate2. Otherwise it continues while an unfinished target scores better, at
    /// its current length, than the worst of that many best targets found, as in Hugging Face's transformers.
    pub early_stopping: bool,
    /// Tokens that no target may contain.
    pub banned_tokens: Vec<u32>,
    /// The first token of every target, such as the target language of a multilingual model. The prefix of a request
    /// follows it, or begins with it. It counts as certain in scores.
    pub forced_first: Option<u32>,
    /// Whether a target that reaches `max_length` ends in `<eos>`, so that no target is cut off, except a prefix of that
    /// length. This `<eos>` counts as certain in scores.
    pub forced_last: bool,
    /// Length of the n-grams that may not repeat in a target; 0 for no limit.
    pub no_repeat_ngram: usize,
    /// The repetition penalty: the factor on the log-probability of tokens that the target already contains, `<bos>`
    /// included; 1 for none.
    pub repetition_penalty: f64,
    /// Whether the probabilities that the rules leave for the next token are divided by their sum, like Hugging Face's
    /// `renormalize_logits`. Scores are then computed from these; samples stay the same.
    pub renormalize: bool,
    /// The tokens that a source's targets may contain; `None` for all. The tokens that a target must begin with and
    /// `<eos>` are allowed in any case. Ignored by models without sources.
    pub shortlist: Option<Arc<Shortlist>>,
    /// Source tokens per batch, padding included; a batch has at least one source.
    pub batch_tokens: usize,
    /// The maximum length of a source in tokens; on some backends, the memory of attention grows with its square.
    pub max_src_len: usize,
}

/// The maximum number of hypotheses per source.
const MOST_WIDTH: usize = 1000;

impl DecodeOptions {
    /// Beam search with the paper's length penalty (§6.1).
    pub fn beam(size: usize) -> Self {
        Self {
            strategy: Strategy::Beam { size },
            length_penalty: LengthPenalty::Paper(0.6),
            ..Self::greedy()
        }
    }

    /// Greedy decoding: the most likely token at each step.
    pub fn greedy() -> Self {
        Self {
            strategy: Strategy::Beam { size: 1 },
            n_best: 1,
            length_penalty: LengthPenalty::None,
            coverage_penalty: 0.0,
            max_length: MaxLength::default(),
            min_length: 0,
            early_stopping: true,
            banned_tokens: Vec::new(),
            forced_first: None,
            forced_last: false,
            no_repeat_ngram: 0,
            repetition_penalty: 1.0,
            renormalize: false,
            shortlist: None,
            batch_tokens: 2048,
            max_src_len: 1024,
        }
    }

    /// Sampling: a token drawn from the distribution at each step.
    pub fn sample(sampling: Sampling) -> Self {
        Self {
            strategy: Strategy::Sample(sampling),
            ..Self::greedy()
        }
    }

    /// Checks every option.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn validate(&self) -> Result<(), DecodeOptionsError> {
        let at_least_one = |name, value: usize| check(name, value, value >= 1, "at least 1");
        let width = |name, value: usize| {
            at_least_one(name, value)?;
            check(name, value, value <= MOST_WIDTH, "at most 1000")
        };
        match &self.strategy {
            Strategy::Beam { size } => {
                width("beam", *size)?;
                let of_beam = self.n_best <= *size;
                check("n_best", self.n_best, of_beam, "at most the beam size")?;
            }
            Strategy::Sample(sampling) => sampling.validate()?,
        }
        width("n_best", self.n_best)?;
        if let MaxLength::Tokens(most) = self.max_length {
            let fits = self.min_length <= most;
            check("min_length", self.min_length, fits, "at most `max_length`")?;
        }
        at_least_one("batch_tokens", self.batch_tokens)?;
        at_least_one("max_src_len", self.max_src_len)?;
        match self.length_penalty {
            LengthPenalty::None => {}
            LengthPenalty::Paper(alpha) => check_positive("length_penalty", alpha, true)?,
            LengthPenalty::Power(alpha) => {
                check("length_penalty", alpha, alpha.is_finite(), "finite")?;
            }
        }
        check_positive("coverage_penalty", self.coverage_penalty, true)?;
        let penalty = self.repetition_penalty;
        let factor = penalty as f32;
        let fits = factor > 0.0 && factor.is_finite();
        check("repetition_penalty", penalty, fits, "positive and finite")
    }

    /// Hypotheses that are decoded per source.
    pub(super) fn width(&self) -> usize {
        match self.strategy {
            Strategy::Beam { size } => size,
            Strategy::Sample(_) => self.n_best,
        }
    }
}

impl Default for DecodeOptions {
    /// The paper's options: a beam of 4 and a length penalty of 0.6 (§6.1).
    fn default() -> Self {
        Self::beam(4)
    }
}

/// The choice of the next token.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// Beam search: the most likely hypotheses are kept.
    Beam {
        /// Hypotheses kept; 1 is greedy decoding.
        size: usize,
    },
    /// Sampling: tokens are drawn.
    Sample(Sampling),
}

/// The distribution that tokens are drawn from.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the log-probabilities; below 1, likely tokens become more likely.
    pub temperature: f64,
    /// The number of most likely tokens to draw from; 0 for all.
    pub top_k: usize,
    /// The total probability of the most likely tokens to draw from; 1 for all.
    pub top_p: f64,
    /// The seed of the random numbers. Each source has random numbers of its own, derived from the seed and its tokens:
    /// its draws do not depend on the other sources, except for tokens that tie within rounding.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            seed: 0,
        }
    }
}

impl Sampling {
    fn validate(&self) -> Result<(), DecodeOptionsError> {
        check_positive("temperature", self.temperature, false)?;
        let top_p = self.top_p;
        let in_range = top_p > 0.0 && top_p <= 1.0;
        check("top_p", top_p, in_range, "above 0 and at most 1")
    }
}

/// The divisor of the log-probability of a hypothesis Y, so that short ones are not preferred.
/// `|Y|` counts `<eos>`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LengthPenalty {
    /// 1.
    None,
    /// `((5 + |Y|) / 6)^α` (Wu et al., 2016), as in §6.1.
    Paper(f64),
    /// `|Y|^α`. A negative α favors short hypotheses.
    Power(f64),
}

impl LengthPenalty {
    /// `|Y|`: the score is the mean log-probability of the tokens.
    pub const AVERAGE: Self = Self::Power(1.0);

    /// The divisor for a hypothesis of this length.
    pub fn of(self, len: usize) -> f64 {
        let len = len as f64;
        match self {
            Self::None => 1.0,
            Self::Paper(alpha) => ((5.0 + len) / 6.0).powf(alpha),
            Self::Power(alpha) => len.max(1.0).powf(alpha),
        }
    }
}

/// The maximum length of a target, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxLength {
    /// The length of the source, or of the prefix of a request without a source, plus this many (§6.1: 50).
    SourcePlus(usize),
    /// This many tokens.
    Tokens(usize),
}

impl Default for MaxLength {
    fn default() -> Self {
        Self::SourcePlus(50)
    }
}

fn check_positive(name: &'static str, value: f64, or_zero: bool) -> Result<(), DecodeOptionsError> {
    let rule = if or_zero {
        "non-negative and finite"
    } else {
        "positive and finite"
    };
    let fits = value.is_finite() && (value > 0.0 || (or_zero && value == 0.0));
    check(name, value, fits, rule)
}

fn check(
    name: &'static str,
    value: impl ToString,
    fits: bool,
    rule: &'static str,
) -> Result<(), DecodeOptionsError> {
    if fits {
        return Ok(());
    }
    Err(DecodeOptionsError::Range {
        name,
        value: value.to_string(),
        rule,
    })
}
