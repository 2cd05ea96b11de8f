//! The tokenized pairs of several corpora, with their weights: read, filtered and tokenized chunk by chunk.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;
use transformer_core::Tokenizers;

use crate::data::batches::source::{ExampleSource, checksum_of, weighted_checksum};
use crate::data::corpora::corpus::Pair;
use crate::data::corpora::files::CorpusFiles;
use crate::data::corpora::filters::{Filtered, PairFilters};
use crate::data::corpora::reader::PairReader;
use crate::data::corpora::text_set::TextSet;
use crate::data::error::CorpusError;
use crate::data::example::{Lengths, TokenizedPair};
use crate::data::tokenizers::tokenize::encode;

/// Number of pairs that are tokenized together, by all threads.
const CHUNK_PAIRS: usize = 4096;
/// Maximum bytes of text per chunk: a line may have 1 MiB.
const CHUNK_BYTES: usize = 4 << 20;

impl CorpusFiles {
    /// The tokenized pairs of all files, in memory, without those that `filters` exclude.
    ///
    /// A [`PairCache`](crate::data::PairCache) holds the same pairs on disk.
    ///
    /// # Errors
    /// When a file cannot be read, a filter or a weight is out of range, or the target language is not chosen.
    pub fn tokenize(
        &self,
        tokenizers: &Tokenizers,
        filters: &PairFilters,
    ) -> Result<WeightedPairs, CorpusError> {
        let mut pairs = Vec::new();
        let kept = tokenize_files(self, tokenizers, filters, |_, pieces| {
            pairs.push(pieces);
            Ok::<_, CorpusError>(())
        })?;
        Ok(WeightedPairs {
            pairs,
            filtered: kept.filtered,
            weights: kept.weights,
        })
    }
}

/// The tokenized pairs of several corpora in memory, with their weights: a source of training examples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WeightedPairs {
    /// The pairs that were kept, in the order of the files.
    pub pairs: Vec<TokenizedPair>,
    /// The counts of skipped pairs, by reason.
    pub filtered: Filtered,
    weights: Vec<(Range<usize>, f64)>,
}

impl ExampleSource for WeightedPairs {
    type Example = TokenizedPair;

    fn lengths(&self) -> Cow<'_, [Lengths]> {
        self.pairs.lengths()
    }

    fn get(&self, index: usize, epoch: usize) -> Result<TokenizedPair, CorpusError> {
        ExampleSource::get(&self.pairs, index, epoch)
    }

    fn checksum(&self) -> u32 {
        weighted_checksum(checksum_of(&self.pairs), &self.weights)
    }

    fn weights(&self) -> Vec<(Range<usize>, f64)> {
        self.weights.clone()
    }

    fn checked_first(&self) -> Vec<usize> {
        self.pairs.checked_first()
    }
}

/// The result of tokenizing all pairs of the files.
pub(crate) struct Kept {
    /// The counts of skipped pairs.
    pub filtered: Filtered,
    /// The range of positions of each corpus among the kept pairs, with its weight.
    pub weights: Vec<(Range<usize>, f64)>,
}

/// Reads all pairs of `files`, and calls `keep` with each that passes the filters, in order.
///
/// Memory holds one chunk of pairs at a time, and a hash of each pair if duplicates are dropped.
pub(crate) fn tokenize_files<E: From<CorpusError>>(
    files: &CorpusFiles,
    tokenizers: &Tokenizers,
    filters: &PairFilters,
    mut keep: impl FnMut(&Pair, TokenizedPair) -> Result<(), E>,
) -> Result<Kept, E> {
    filters.check()?;
    files.check_weights()?;
    let mut chunks = Chunks {
        files,
        seen: TextSet::default(),
        filtered: Filtered::new(filters.clone()),
    };
    let mut weights = Vec::with_capacity(files.corpora().len());
    for (file, weight) in files.corpora() {
        let start = chunks.filtered.kept;
        let mut reader = file.open_again()?;
        loop {
            let chunk = chunks.next(&mut reader)?;
            if chunk.is_empty() {
                break;
            }
            let encoded: Vec<_> = chunk
                .par_iter()
                .map(|(line, pair)| encode(pair, tokenizers, || format!("{file}: line {line}")))
                .collect();
            for ((line, pair), pieces) in chunk.iter().zip(encoded) {
                match pieces? {
                    Ok(pieces) if chunks.filtered.passes(&pieces) => keep(pair, pieces)?,
                    Ok(_) => {}
                    Err(problem) => {
                        let problem = || format!("{file}: line {line}: {problem}");
                        chunks.filtered.failed.add(problem);
                    }
                }
            }
        }
        chunks.filtered.count_unusable(reader.unusable());
        weights.push((start..chunks.filtered.kept, *weight));
    }
    Ok(Kept {
        filtered: chunks.filtered,
        weights,
    })
}

/// Reads pairs in chunks for tokenization.
struct Chunks<'a> {
    files: &'a CorpusFiles,
    /// The earlier pairs, if duplicates are dropped.
    seen: TextSet,
    filtered: Filtered,
}

impl Chunks<'_> {
    /// The next pairs that pass the filters on text, each with its line; none at the end of the file.
    fn next(&mut self, reader: &mut PairReader) -> Result<Vec<(usize, Pair)>, CorpusError> {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while chunk.len() < CHUNK_PAIRS
            && bytes < CHUNK_BYTES
            && let Some(pair) = reader.next()
        {
            let pair = pair?;
            self.filtered.read += 1;
            if self.files.holds_out(&pair) {
                self.filtered.held_out += 1;
            } else if self.is_duplicate(&pair) {
                self.filtered.duplicates += 1;
            } else {
                bytes += pair.source.len() + pair.target.len();
                chunk.push((reader.line(), pair));
            }
        }
        Ok(chunk)
    }

    fn is_duplicate(&mut self, pair: &Pair) -> bool {
        self.filtered.filters.drop_duplicates && !self.seen.insert(pair)
    }
}
