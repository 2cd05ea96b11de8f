//! Values that have names.

use serde::{Deserialize, Serialize};

/// Kinds of tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerKind {
    /// Byte-level byte-pair encoding.
    Bpe,
    /// A unigram language model's pieces.
    Unigram,
    /// Characters.
    Characters,
    /// Words between white space.
    Words,
}

/// Numbers that a validation measures by decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// sacreBLEU's BLEU.
    Bleu,
    /// sacreBLEU's chrF.
    Chrf,
    /// The share of sentences that are exactly the reference.
    ExactMatch,
    /// The share of sentences that are not exactly the reference.
    WordErrorRate,
    /// Edits for each token of the reference.
    TokenErrorRate,
}

/// Numbers by which one validation is better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BestBy {
    /// The label-smoothed loss.
    Loss,
    /// The perplexity.
    Perplexity,
    /// The token accuracy.
    Accuracy,
    /// BLEU.
    Bleu,
    /// chrF.
    Chrf,
    /// Exact matches.
    ExactMatch,
    /// The word error rate.
    WordErrorRate,
    /// The token error rate.
    TokenErrorRate,
}

impl BestBy {
    /// The metric that measures it, where it is none of every validation.
    pub fn metric(self) -> Option<Metric> {
        match self {
            Self::Loss | Self::Perplexity | Self::Accuracy => None,
            Self::Bleu => Some(Metric::Bleu),
            Self::Chrf => Some(Metric::Chrf),
            Self::ExactMatch => Some(Metric::ExactMatch),
            Self::WordErrorRate => Some(Metric::WordErrorRate),
            Self::TokenErrorRate => Some(Metric::TokenErrorRate),
        }
    }

    /// Whether a higher number is a better one.
    pub fn highest_is_best(self) -> bool {
        matches!(
            self,
            Self::Accuracy | Self::Bleu | Self::Chrf | Self::ExactMatch
        )
    }
}
