//! Tokenizes the pairs of a corpus in memory.

use std::fmt;

use rayon::prelude::*;
use transformer_core::Tokenizers;
use transformer_core::text::TextError;

use crate::data::corpora::corpus::{Corpus, Pair};
use crate::data::error::CorpusError;
use crate::data::example::TokenizedPair;

impl Corpus {
    /// Tokenizes the pairs. Pairs with more than `max_pieces` on a side are skipped and counted, because the
    /// memory of attention grows with the square of the length. So are pairs that the tokenizer cannot encode.
    ///
    /// # Errors
    /// [`CorpusError::Tokenizer`] when no target can be encoded because the target language is not chosen.
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
        let mut failed = Vec::new();
        for (position, pair) in encoded.into_iter().enumerate() {
            match pair? {
                Err(problem) => failed.push((position, problem)),
                Ok(pair) if pair.source.len().max(pair.target.len()) <= max_pieces => {
                    pairs.push(pair);
                    positions.push(position);
                }
                Ok(_) => {}
            }
        }
        Ok(Tokenized {
            left_out: self.len() - pairs.len() - failed.len(),
            failed,
            max_pieces,
            pairs,
            positions,
        })
    }
}

/// The tokenized pairs of a corpus, and how many pairs were skipped.
///
/// Displayed in one line: `176396 pairs, 12 skipped (more than 128 pieces)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tokenized {
    /// The pairs that were kept, in the order of the corpus.
    pub pairs: Vec<TokenizedPair>,
    /// The position of each of them in the corpus.
    pub positions: Vec<usize>,
    /// Number of pairs skipped because a side has too many pieces.
    pub left_out: usize,
    /// Each pair skipped because the tokenizer cannot encode it: its position in the corpus, and the problem.
    pub failed: Vec<(usize, String)>,
    /// Maximum pieces per side.
    pub max_pieces: usize,
}

impl fmt::Display for Tokenized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pairs.len() {
            1 => write!(f, "1 pair")?,
            pairs => write!(f, "{pairs} pairs")?,
        }
        if self.left_out > 0 {
            let (left_out, most) = (self.left_out, self.max_pieces);
            write!(f, ", {left_out} skipped (more than {most} pieces)")?;
        }
        match self.failed.len() {
            0 => Ok(()),
            failed => write!(f, ", {failed} skipped (cannot be encoded)"),
        }
    }
}

/// Tokenizes a pair, or returns the problem with a sentence that the tokenizer cannot encode. `place` is the
/// location of the pair, for errors that concern every pair.
pub(crate) fn encode(
    pair: &Pair,
    tokenizers: &Tokenizers,
    place: impl Fn() -> String,
) -> Result<Result<TokenizedPair, String>, CorpusError> {
    let checked = |side, encoded| match encoded {
        Ok(pieces) => Ok(Ok(pieces)),
        Err(TextError::Tokenizer(problem)) => Ok(Err(format!("the {side} sentence: {problem}"))),
        Err(error) => Err(CorpusError::Tokenizer {
            place: place(),
            side,
            source: Box::new(error),
        }),
    };
    let source = checked("source", tokenizers.encode_source(&pair.source))?;
    let target = checked("target", tokenizers.encode_target(&pair.target))?;
    Ok(source.and_then(|source| target.map(|target| TokenizedPair { source, target })))
}
