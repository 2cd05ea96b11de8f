//! The pairs of a corpus in memory as pieces.

use std::fmt;

use rayon::prelude::*;
use transformer_core::Tokenizers;

use super::corpus::{Corpus, Pair};
use super::error::CorpusError;
use super::example::TokenizedPair;

impl Corpus {
    /// The pairs as pieces. A pair with more than `max_pieces` on a side is left out and counted:
    /// the memory of attention grows with the square of the length.
    ///
    /// # Errors
    /// [`CorpusError::Tokenizer`] when the tokenizer cannot encode a sentence.
    pub fn tokenize(
        &self,
        tokenizers: &Tokenizers,
        max_pieces: usize,
    ) -> Result<Tokenized, CorpusError> {
        let encoded: Vec<_> = (self.pairs().par_iter().enumerate())
            .map(|(index, pair)| encode(pair, tokenizers, || format!("pair {}", index + 1)))
            .collect();
        let mut pairs = Vec::with_capacity(self.len());
        let mut positions = Vec::with_capacity(self.len());
        for (position, pair) in encoded.into_iter().enumerate() {
            let pair = pair?;
            if pair.source.len().max(pair.target.len()) <= max_pieces {
                pairs.push(pair);
                positions.push(position);
            }
        }
        Ok(Tokenized {
            left_out: self.len() - pairs.len(),
            max_pieces,
            pairs,
            positions,
        })
    }
}

/// The pairs of a corpus as pieces, and the number of pairs left out.
///
/// Displayed in one line: `176396 pairs, 12 of more than 128 pieces left out`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tokenized {
    /// The pairs that were kept, in the order of the corpus.
    pub pairs: Vec<TokenizedPair>,
    /// The position of each of them in the corpus.
    pub positions: Vec<usize>,
    /// Pairs that were left out because a side has too many pieces.
    pub left_out: usize,
    /// The most pieces that a side may have.
    pub max_pieces: usize,
}

impl fmt::Display for Tokenized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pairs.len() {
            1 => write!(f, "1 pair")?,
            pairs => write!(f, "{pairs} pairs")?,
        }
        match self.left_out {
            0 => Ok(()),
            left_out => write!(
                f,
                ", {left_out} of more than {} pieces left out",
                self.max_pieces
            ),
        }
    }
}

/// The pieces of a pair; `place` is where it stands, for an error.
pub(super) fn encode(
    pair: &Pair,
    tokenizers: &Tokenizers,
    place: impl Fn() -> String,
) -> Result<TokenizedPair, CorpusError> {
    let failed = |side, error| CorpusError::Tokenizer {
        place: place(),
        side,
        source: Box::new(error),
    };
    let source = tokenizers.encode_source(&pair.source);
    let target = tokenizers.encode_target(&pair.target);
    Ok(TokenizedPair {
        source: source.map_err(|error| failed("source", error))?,
        target: target.map_err(|error| failed("target", error))?,
    })
}
