//! Errors of requests and of decoding options.

/// A request that cannot be decoded, or a pair that cannot be scored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("source {index} {problem}")]
#[non_exhaustive]
pub struct DecodeError {
    /// Index of the request or pair, from 0.
    pub index: usize,
    /// The problem.
    pub problem: RequestProblem,
}

/// A problem with a request to decode, or with a pair to score.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestProblem {
    /// The source has more tokens than the model has positions.
    #[error("has {length} tokens, more than the model's {max_len} learned positions")]
    TooLong {
        /// Its tokens, `<eos>` included.
        length: usize,
        /// Positions of the model.
        max_len: usize,
    },
    /// The source has more tokens than the options allow.
    #[error("has {length} tokens, more than the limit of {limit}")]
    OverLimit {
        /// Its tokens, `<eos>` included.
        length: usize,
        /// The options' limit.
        limit: usize,
    },
    /// The source text cannot be tokenized.
    #[error("cannot be tokenized: {problem}")]
    Text {
        /// The tokenizer's error.
        problem: String,
    },
    /// The model's log-probabilities are NaN: its weights are damaged.
    #[error("has NaN log-probabilities; the model's weights are damaged")]
    NotANumber,
    /// A source for a model without sources.
    #[error("has {length} source tokens, but the model reads no source")]
    Unread {
        /// Tokens of the source.
        length: usize,
    },
    /// Anything else that a model requires: a phrase that follows `source 3` in a message, such as `has 7 tokens, of 8`.
    #[error("{0}")]
    Other(String),
    /// The source is empty.
    #[error("is empty")]
    Empty,
    /// A token outside the source vocabulary.
    #[error("holds token {token}, outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Entries of the source vocabulary.
        vocab_size: usize,
    },
    /// The prefix of the target has a token outside the target vocabulary.
    #[error("has a prefix with token {token}, outside the vocabulary of {vocab_size}")]
    UnknownPrefix {
        /// The token.
        token: u32,
        /// Entries of the target vocabulary.
        vocab_size: usize,
    },
    /// The prefix of the target exceeds the maximum length of the target.
    #[error("has a prefix of {length} tokens, more than the maximum target length of {limit}")]
    PrefixTooLong {
        /// Tokens of the prefix.
        length: usize,
        /// The options' limit.
        limit: usize,
    },
    /// The prefix of the target has more tokens than the model has positions.
    #[error("has a prefix of {length} tokens, more than the model's {max_len} learned positions")]
    PrefixOverPositions {
        /// Tokens of the prefix.
        length: usize,
        /// Positions of the model.
        max_len: usize,
    },
    /// The target has more tokens than the model has positions.
    #[error("has a target of {length} tokens, more than the model's {max_len} learned positions")]
    TargetTooLong {
        /// Its tokens, `<eos>` included.
        length: usize,
        /// Positions of the model.
        max_len: usize,
    },
    /// The target has a token outside the target vocabulary.
    #[error("has a target with token {token}, outside the vocabulary of {vocab_size}")]
    UnknownTarget {
        /// The token.
        token: u32,
        /// Entries of the target vocabulary.
        vocab_size: usize,
    },
}

/// Invalid decoding options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeOptionsError {
    /// An option is out of range.
    #[error("`{name}` is {value}; it must be {rule}")]
    Range {
        /// The option.
        name: &'static str,
        /// Its value.
        value: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A banned token outside the target vocabulary.
    #[error("`banned_tokens` has token {token}, outside the vocabulary of {vocab_size}")]
    BannedToken {
        /// The token.
        token: u32,
        /// Entries of the target vocabulary.
        vocab_size: usize,
    },
    /// A shortlist with a token outside the target vocabulary.
    #[error("the shortlist has token {token}, outside the vocabulary of {vocab_size}")]
    Shortlist {
        /// The token.
        token: u32,
        /// Entries of the target vocabulary.
        vocab_size: usize,
    },
    /// A forced first token outside the target vocabulary.
    #[error("`forced_first` is token {token}, outside the vocabulary of {vocab_size}")]
    ForcedToken {
        /// The token.
        token: u32,
        /// Entries of the target vocabulary.
        vocab_size: usize,
    },
    /// A minimum length above the number of positions of the model.
    #[error(
        "`min_length` asks for {min_length} tokens, more than the model's {max_len} learned positions"
    )]
    MinLength {
        /// The fewest tokens of a target.
        min_length: usize,
        /// Positions of the model.
        max_len: usize,
    },
    /// An ensemble without a model.
    #[error("an ensemble needs at least one model")]
    NoModel,
    /// Models of an ensemble with vocabularies of different sizes, or with different special tokens.
    #[error("models 0 and {index} of the ensemble have different {what}")]
    Vocabularies {
        /// The first model that differs from model 0.
        index: usize,
        /// What differs: `vocabulary sizes` or `special tokens`.
        what: &'static str,
    },
}
