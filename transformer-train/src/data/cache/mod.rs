//! Tokenized pairs in a file, read by position.

mod dropout;
mod format;
mod positional;
mod recipe;

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use transformer_core::Tokenizers;
use transformer_core::formats::replace_file;

use self::dropout::PieceDropout;
use self::format::{CacheWriter, Metadata, open};
use self::positional::PositionalFile;
use self::recipe::Recipe;
use crate::data::batches::source::{ExampleSource, weighted_checksum};
use crate::data::corpora::corpus::Pair;
use crate::data::corpora::files::CorpusFiles;
use crate::data::corpora::filters::{Filtered, PairFilters};
use crate::data::corpora::weighted_pairs::tokenize_files;
use crate::data::corpora::writer::WriteError;
use crate::data::error::CorpusError;
use crate::data::example::{Checksum, Example, Lengths, TokenizedPair};

/// What a cache contains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheOptions {
    /// Which pairs are skipped.
    pub filters: PairFilters,
    /// Whether to store the sentences beside their pieces, as [`PairCache::with_dropout`] requires.
    pub keep_text: bool,
}

/// Tokenized pairs in a file, for corpora larger than memory.
///
/// The file is built once, in one pass over the corpora: chunk by chunk, pairs are read, filtered and tokenized by
/// all threads, and written. Training then reads each pair by its position. Memory holds 16 bytes per pair: its
/// position in the file and its lengths.
///
/// A run with a cache is bit-identical to a run with the same pairs in memory ([`CorpusFiles::tokenize`]), and
/// either can be resumed as the other.
///
/// ```no_run
/// use transformer_core::Tokenizers;
/// use transformer_core::text::Tokenizer;
/// use transformer_train::data::{CacheOptions, CorpusFile, CorpusFiles, PairCache};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let files = CorpusFiles::new()
///     .with(CorpusFile::tsv("web.tsv.gz"), 1.0)
///     .with(CorpusFile::parallel("talks.en", "talks.fr"), 2.5);
/// let (train, valid) = files.hold_out(1000, 0)?;
/// let tokenizers = Tokenizers::shared(Tokenizer::from_file("tokenizer.json")?);
/// let options = CacheOptions::default();
/// let cache = PairCache::open_or_build("pairs.cache", &train, &tokenizers, &options)?;
/// println!("{}", cache.filtered());
/// for line in cache.filtered().left_out() {
///     println!("{line}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct PairCache {
    path: PathBuf,
    file: PositionalFile,
    /// Where the record of each pair begins, and finally where the last one ends.
    offsets: Vec<u64>,
    /// Number of pieces of each pair's source and target.
    pieces: Vec<[u32; 2]>,
    metadata: Metadata,
    dropout: Option<PieceDropout>,
}

impl PairCache {
    /// Opens the cache at `path` if it was built from the same files, tokenizers and options; builds it if it is
    /// missing or was built from others. The weights are those of `files` in either case.
    ///
    /// Files are compared by their bytes, which are read for this.
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`open`](Self::open): a damaged cache is refused, and a file that is not a
    /// cache is not overwritten.
    pub fn open_or_build(
        path: impl AsRef<Path>,
        files: &CorpusFiles,
        tokenizers: &Tokenizers,
        options: &CacheOptions,
    ) -> Result<Self, CorpusError> {
        let path = path.as_ref();
        let recipe = Recipe::new(files, tokenizers, options)?;
        match Self::open(path) {
            Ok(cache) if cache.metadata.recipe == recipe => return cache.with_weights_of(files),
            Ok(_) | Err(CorpusError::CacheFormat { .. }) => {}
            Err(CorpusError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Self::build_by(recipe, path, files, tokenizers)
    }

    /// Builds a cache at `path`, replacing an existing file.
    ///
    /// The file is written atomically: under another name in the same folder, flushed to disk and renamed.
    ///
    /// # Errors
    /// When a file cannot be read or written, a filter or a weight is out of range, or the tokenizer cannot encode
    /// a sentence.
    pub fn build(
        path: impl AsRef<Path>,
        files: &CorpusFiles,
        tokenizers: &Tokenizers,
        options: &CacheOptions,
    ) -> Result<Self, CorpusError> {
        let recipe = Recipe::new(files, tokenizers, options)?;
        Self::build_by(recipe, path.as_ref(), files, tokenizers)
    }

    fn build_by(
        recipe: Recipe,
        path: &Path,
        files: &CorpusFiles,
        tokenizers: &Tokenizers,
    ) -> Result<Self, CorpusError> {
        let written = replace_file(path, |side| write(recipe, side, files, tokenizers));
        match written {
            Ok(()) => Self::open(path),
            Err(error) => Err(error.at(path)),
        }
    }

    /// Opens a cache and reads it once to verify it.
    ///
    /// # Errors
    /// When the file cannot be read, is not a cache, was written in another format version, or was truncated or
    /// changed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CorpusError> {
        open(path.as_ref())
    }

    /// Draws the pieces of each pair anew in each epoch, by BPE dropout (Provilkov et al., 2020): each merge is
    /// skipped with probability `dropout`.
    ///
    /// The pieces of a pair depend only on its text, its position, the epoch and `seed`, not on the order of
    /// reading. Batches are planned from the lengths without dropout, so they are the same with and without it,
    /// and may become up to 1.5 times as long as planned: a side that would have more than 1.5 times its pieces,
    /// or more than the longest side of all pairs, keeps its pieces without dropout.
    ///
    /// # Errors
    /// When the cache contains no text ([`CacheOptions::keep_text`]) or was built with other tokenizers, when
    /// `dropout` is outside [0, 1), and when a tokenizer has no merges.
    pub fn with_dropout(
        mut self,
        tokenizers: &Tokenizers,
        dropout: f64,
        seed: u64,
    ) -> Result<Self, CorpusError> {
        let path = || self.path.clone();
        if !self.metadata.recipe.options.keep_text {
            return Err(CorpusError::NoText { path: path() });
        }
        if !self.metadata.recipe.has_tokenizers(tokenizers)? {
            return Err(CorpusError::OtherTokenizers { path: path() });
        }
        let longest = [0_usize, 1].map(|side| {
            let pieces = self.pieces.iter().map(|pieces| pieces[side]);
            pieces.max().unwrap_or(0) as usize
        });
        self.dropout = Some(PieceDropout::new(tokenizers, dropout, seed, longest)?);
        Ok(self)
    }

    fn with_weights_of(mut self, files: &CorpusFiles) -> Result<Self, CorpusError> {
        files.check_weights()?;
        let weights = self.metadata.weights.iter_mut();
        for ((_, weight), (_, now)) in weights.zip(files.corpora()) {
            *weight = *now;
        }
        Ok(self)
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many pairs of the files were skipped when the cache was built, and why.
    pub fn filtered(&self) -> &Filtered {
        &self.metadata.filtered
    }

    /// The sentences of a pair.
    ///
    /// # Errors
    /// When the cache contains no text, or the file cannot be read.
    ///
    /// # Panics
    /// When `index` is out of range.
    pub fn text(&self, index: usize) -> Result<Pair, CorpusError> {
        if !self.metadata.recipe.options.keep_text {
            let path = self.path.clone();
            return Err(CorpusError::NoText { path });
        }
        self.text_in(&self.record(index)?, index)
    }

    /// The bytes of a pair's record: at least those of its pieces.
    fn record(&self, index: usize) -> Result<Vec<u8>, CorpusError> {
        let [start, end] = [index, index + 1].map(|at| self.offsets[at]);
        let mut record = vec![0; (end - start) as usize];
        let read = self.file.read_exact_at(&mut record, start);
        read.map_err(CorpusError::io(&self.path))?;
        Ok(record)
    }

    fn pieces_in(&self, record: &[u8], index: usize) -> TokenizedPair {
        let [source, target] = self.pieces[index].map(|pieces| pieces as usize);
        let (pieces, _) = record.as_chunks::<4>();
        let pieces = |range: Range<usize>| {
            let pieces = pieces[range].iter();
            pieces.map(|piece| u32::from_le_bytes(*piece)).collect()
        };
        TokenizedPair {
            source: pieces(0..source),
            target: pieces(source..source + target),
        }
    }

    fn text_in(&self, record: &[u8], index: usize) -> Result<Pair, CorpusError> {
        let [source, target] = self.pieces[index].map(|pieces| pieces as usize);
        let after_pieces = &record[4 * (source + target)..];
        let text = || {
            let (length, text) = after_pieces.split_first_chunk::<4>()?;
            let length = u32::from_le_bytes(*length) as usize;
            let (source, target) = text.split_at_checked(length)?;
            let [source, target] = [source, target].map(|side| str::from_utf8(side).ok());
            Some(Pair {
                source: source?.to_owned(),
                target: target?.to_owned(),
            })
        };
        text().ok_or_else(|| CorpusError::CacheDamaged {
            path: self.path.clone(),
            problem: format!("the text of pair {}", index + 1),
        })
    }
}

impl ExampleSource for PairCache {
    type Example = TokenizedPair;

    fn lengths(&self) -> Cow<'_, [Lengths]> {
        let pieces = self.pieces.iter();
        pieces
            .map(|pieces| {
                let [source, target] = pieces.map(|pieces| pieces as usize);
                TokenizedPair::lengths_of(source, target)
            })
            .collect()
    }

    fn get(&self, index: usize, epoch: usize) -> Result<TokenizedPair, CorpusError> {
        let record = self.record(index)?;
        let pieces = self.pieces_in(&record, index);
        match &self.dropout {
            None => Ok(pieces),
            Some(dropout) => {
                let text = self.text_in(&record, index)?;
                dropout.draw(&text, pieces, index, epoch)
            }
        }
    }

    fn checksum(&self) -> u32 {
        let pairs = weighted_checksum(self.metadata.checksum, &self.metadata.weights);
        match &self.dropout {
            None => pairs,
            Some(dropout) => dropout.checksum(pairs),
        }
    }

    fn weights(&self) -> Vec<(Range<usize>, f64)> {
        self.metadata.weights.clone()
    }

    /// The pair with the longest source and the pair with the longest target.
    fn checked_first(&self) -> Vec<usize> {
        let positions =
            [0_usize, 1].map(|side| (0..self.len()).max_by_key(|&index| self.pieces[index][side]));
        positions.into_iter().flatten().collect()
    }
}

impl fmt::Debug for PairCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairCache")
            .field("path", &self.path)
            .field("pairs", &self.len())
            .finish_non_exhaustive()
    }
}

/// Writes a cache to a path where no file exists.
fn write(
    recipe: Recipe,
    path: &Path,
    files: &CorpusFiles,
    tokenizers: &Tokenizers,
) -> Result<(), WriteError> {
    let CacheOptions { filters, keep_text } = recipe.options.clone();
    let out = BufWriter::new(File::create(path)?);
    let mut writer = CacheWriter::new(out, keep_text)?;
    let mut checksum = Checksum::default();
    let kept = tokenize_files(files, tokenizers, &filters, |text, pieces| {
        pieces.add_to(&mut checksum);
        Ok::<_, WriteError>(writer.write(text, &pieces)?)
    })?;
    Ok(writer.finish(&Metadata {
        recipe,
        filtered: kept.filtered,
        weights: kept.weights,
        checksum: checksum.sum(),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::corpora::files::CorpusFile;
    use crate::data::train_bpe;

    #[test]
    fn a_pair_takes_sixteen_bytes_of_memory() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = folder.path().join("corpus.tsv");
        let lines = (0..2000).map(|number| format!("sentence {number}\tphrase {number}\n"));
        std::fs::write(&corpus, lines.collect::<String>()).unwrap();
        let tokenizers =
            Tokenizers::shared(train_bpe(["sentence phrase"].into_iter(), 280).unwrap());
        let options = CacheOptions {
            keep_text: true,
            ..CacheOptions::default()
        };
        let files = CorpusFiles::new().with(CorpusFile::tsv(corpus), 1.0);
        let path = folder.path().join("cache");
        let cache = PairCache::build(path, &files, &tokenizers, &options).unwrap();
        assert_eq!(cache.len(), 2000);
        let offsets = cache.offsets.capacity() * size_of::<u64>();
        let pieces = cache.pieces.capacity() * size_of::<[u32; 2]>();
        // One more offset than there are pairs.
        assert!(offsets + pieces <= 16 * 2000 + 8, "{offsets} + {pieces}");
    }
}
