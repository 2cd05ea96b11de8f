//! Requests: sources to decode, and pairs to score.

use crate::special_tokens::SpecialTokens;

/// A source to be decoded, and the tokens that its target must begin with.
///
/// The library adds `<eos>` at the end of a sentence: [`Request::new`] accepts the sentence without it
/// ([`SpecialTokens::end_source`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    source: Sequence,
    prefix: Vec<u32>,
}

impl Request {
    /// A sentence to decode, without `<eos>`.
    pub fn new(sentence: impl Into<Vec<u32>>) -> Self {
        Self::of(Sequence::Sentence(sentence.into()))
    }

    /// Source tokens that are read as they are, without an added `<eos>`: for models whose sources do not end in it, or
    /// for tokens that include it.
    pub fn exact(source: impl Into<Vec<u32>>) -> Self {
        Self::of(Sequence::Exact(source.into()))
    }

    /// A prompt to continue, for a model without sources such as a [`LanguageModel`](crate::LanguageModel). The model
    /// reads `<bos>` before it, unless its [`SpecialTokens::prompt_bos`] is false. A hypothesis begins with the prompt,
    /// which is not predicted: it counts neither in the log-probability nor in the score.
    pub fn prompt(prefix: impl Into<Vec<u32>>) -> Self {
        Self::exact([]).with_prefix(prefix)
    }

    /// Sets the tokens that the target must begin with, without `<bos>`. An `<eos>` among them ends the target, whatever
    /// follows it, except in a [prompt](Self::prompt).
    pub fn with_prefix(self, prefix: impl Into<Vec<u32>>) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    fn of(source: Sequence) -> Self {
        Self {
            source,
            prefix: Vec::new(),
        }
    }

    /// The tokens that the target must begin with.
    pub fn prefix(&self) -> &[u32] {
        &self.prefix
    }

    /// The source as the model reads it.
    pub(super) fn source(&self, tokens: SpecialTokens) -> Vec<u32> {
        self.source.ended(|source| tokens.end_source(source))
    }
}

/// A source and its target, to score, or to show the attention of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTarget {
    source: Sequence,
    target: Sequence,
}

impl SourceTarget {
    /// A pair of sentences, without `<bos>` and `<eos>`. The probability of the target includes its `<eos>`.
    pub fn new(source: impl Into<Vec<u32>>, target: impl Into<Vec<u32>>) -> Self {
        Self {
            source: Sequence::Sentence(source.into()),
            target: Sequence::Sentence(target.into()),
        }
    }

    /// A sentence without `<eos>`, and an unfinished target, such as a hypothesis that was cut off at its length limit:
    /// no `<eos>` is added to it.
    pub fn unfinished(source: impl Into<Vec<u32>>, target: impl Into<Vec<u32>>) -> Self {
        Self {
            source: Sequence::Sentence(source.into()),
            target: Sequence::Exact(target.into()),
        }
    }

    /// A pair that is used as it is, without an added `<eos>`: a target that does not end in it is scored as
    /// unfinished. Neither side begins with `<bos>`.
    pub fn exact(source: impl Into<Vec<u32>>, target: impl Into<Vec<u32>>) -> Self {
        Self {
            source: Sequence::Exact(source.into()),
            target: Sequence::Exact(target.into()),
        }
    }

    /// Source and target as the model reads and predicts them.
    pub(crate) fn ended(&self, tokens: SpecialTokens) -> [Vec<u32>; 2] {
        let source = self.source.ended(|source| tokens.end_source(source));
        let target = self.target.ended(|target| [target, &[tokens.eos]].concat());
        [source, target]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sequence {
    /// `<eos>` is added.
    Sentence(Vec<u32>),
    /// Nothing is added.
    Exact(Vec<u32>),
}

impl Sequence {
    fn ended(&self, end: impl Fn(&[u32]) -> Vec<u32>) -> Vec<u32> {
        match self {
            Self::Sentence(tokens) => end(tokens),
            Self::Exact(tokens) => tokens.clone(),
        }
    }
}
