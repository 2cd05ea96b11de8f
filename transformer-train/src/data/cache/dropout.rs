//! BPE dropout: the pieces of a pair drawn anew in each epoch.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use transformer_core::Tokenizers;
use transformer_core::text::TextError;

use crate::data::corpora::corpus::Pair;
use crate::data::error::CorpusError;
use crate::data::example::{Checksum, TokenizedPair};

/// Draws the pieces of pairs.
pub(super) struct PieceDropout {
    tokenizers: Tokenizers,
    dropout: f64,
    seed: u64,
    /// Most pieces of any source and of any target, without dropout.
    longest: [usize; 2],
}

impl PieceDropout {
    pub fn new(
        tokenizers: &Tokenizers,
        dropout: f64,
        seed: u64,
        longest: [usize; 2],
    ) -> Result<Self, CorpusError> {
        let in_range = (0.0..1.0).contains(&dropout);
        CorpusError::check("dropout", dropout, in_range, "in [0, 1)")?;
        let new = Self {
            tokenizers: tokenizers.clone(),
            dropout,
            seed,
            longest,
        };
        // Fails before the first pair if a tokenizer has no merges.
        for tokenizer in [tokenizers.source(), tokenizers.target()] {
            tokenizer
                .encode_with_dropout("a", dropout, &mut new.rng(0, 0))
                .map_err(|error| CorpusError::Other(Box::new(error)))?;
        }
        Ok(new)
    }

    /// The pieces of a pair in an epoch. A side that would become too long keeps the given pieces, which are
    /// without dropout.
    pub fn draw(
        &self,
        text: &Pair,
        pieces: TokenizedPair,
        index: usize,
        epoch: usize,
    ) -> Result<TokenizedPair, CorpusError> {
        let Self {
            tokenizers,
            dropout,
            ..
        } = self;
        let mut rng = self.rng(index, epoch);
        // The random numbers of the source are drawn first.
        let source = tokenizers.encode_source_with_dropout(&text.source, *dropout, &mut rng);
        let target = tokenizers.encode_target_with_dropout(&text.target, *dropout, &mut rng);
        let chosen =
            |side, drawn: Result<Vec<u32>, TextError>, pieces: Vec<u32>, longest| match drawn {
                Ok(drawn) if drawn.len() <= most(pieces.len(), longest) => Ok(drawn),
                Ok(_) => Ok(pieces),
                Err(source) => Err(CorpusError::Tokenizer {
                    place: format!("pair {}", index + 1),
                    side,
                    source: Box::new(source),
                }),
            };
        let [longest_source, longest_target] = self.longest;
        Ok(TokenizedPair {
            source: chosen("source", source, pieces.source, longest_source)?,
            target: chosen("target", target, pieces.target, longest_target)?,
        })
    }

    /// The checksum of pairs with BPE dropout, from the checksum of the pairs.
    pub fn checksum(&self, pairs: u32) -> u32 {
        let mut checksum = Checksum::default();
        checksum.bytes(&pairs.to_le_bytes());
        checksum.bytes(&self.dropout.to_le_bytes());
        checksum.bytes(&self.seed.to_le_bytes());
        checksum.sum()
    }

    /// The random generator of a pair in an epoch, independent of earlier draws.
    fn rng(&self, index: usize, epoch: usize) -> ChaCha8Rng {
        let numbers = [self.seed, epoch as u64, index as u64];
        let mut key = [0; 32];
        for (bytes, number) in key.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        ChaCha8Rng::from_seed(key)
    }
}

/// The most pieces that may be drawn in place of `pieces`: 1.5 times as many, so that a batch needs at most 1.5
/// times the planned memory, and no more than the longest row without dropout, which fits the model.
fn most(pieces: usize, longest: usize) -> usize {
    (pieces + pieces.div_ceil(2)).min(longest)
}
