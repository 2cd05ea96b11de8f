//! Errors of corpora.

use std::io;
#[cfg(feature = "text")]
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;
#[cfg(feature = "text")]
use transformer_core::text::TextError;

use crate::data::corpora::unusable::UnusablePairs;

/// An error of a corpus or its file. Lines and bytes count from 1.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The file cannot be opened.
    #[error("{}: cannot open: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path is a directory, not a file.
    #[error("{}: is a directory, not a file", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The path is a pipe or a device, which can be read only once.
    #[error(
        "{}: not a regular file; pairs to train on are read more than once: write them to a file first",
        path.display()
    )]
    NotRegular {
        /// The pipe or the device.
        path: PathBuf,
    },
    /// The file is compressed, but not by gzip.
    #[error("{}: {source}", path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// The error of [`TextReader::new`](crate::data::TextReader::new), which names the program that
        /// decompresses the file.
        source: io::Error,
    },
    /// The file cannot be read completely.
    #[error("{}: line {line}: cannot read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The line reached.
        line: usize,
        /// The operating system's error.
        source: io::Error,
    },
    /// The gzip data is truncated, or does not match its checksum.
    #[error("{}: line {line}: gzip data is truncated or corrupt: {source}", path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
        /// The line reached.
        line: usize,
        /// The decoder's error.
        source: io::Error,
    },
    /// A line is not UTF-8.
    #[error("{}: line {line}: not UTF-8 at byte {byte} of the line", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The first byte that is not UTF-8, counted in the line from 1.
        byte: usize,
    },
    /// A line is too long to read, or would be too long to read back.
    #[error("{}: line {line}: longer than {limit} bytes", path.display())]
    LineTooLong {
        /// The file that is read or written.
        path: PathBuf,
        /// The line.
        line: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// A line of tab-separated text has no tab.
    #[error("{}: line {line}: no tab between source and target", path.display())]
    NoTab {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// Two line-aligned files have different numbers of lines.
    #[error(
        "{} has {source_lines} lines but {} has {target_lines}",
        source_path.display(),
        target_path.display()
    )]
    UnequalLines {
        /// File of source sentences.
        source_path: PathBuf,
        /// Lines in the source file.
        source_lines: usize,
        /// File of target sentences.
        target_path: PathBuf,
        /// Lines in the target file.
        target_lines: usize,
    },
    /// A file has no usable sentence pair.
    #[error("{}: {}", path.display(), no_pair(unusable))]
    Empty {
        /// The file; of two line-aligned files, the file of the sources.
        path: PathBuf,
        /// The counts of its unusable pairs.
        unusable: UnusablePairs,
    },
    /// Holding out this many source sentences would leave none for training.
    #[error("cannot hold out {asked} source sentences of {distinct} and still train")]
    TooFewSources {
        /// Source sentences to hold out.
        asked: usize,
        /// Distinct source sentences in the corpus.
        distinct: usize,
    },
    /// A sentence would not be read back unchanged, so it is not written.
    #[error(
        "{}: pair {pair}: the {side} side is empty, padded with space, or holds a tab or line break",
        path.display()
    )]
    Unwritable {
        /// The file that was to be written.
        path: PathBuf,
        /// The pair, counted from 1: its line in the file.
        pair: usize,
        /// `source` or `target`.
        side: &'static str,
    },
    /// The file cannot be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// File that was to be written.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The tokenizer cannot encode a sentence.
    #[cfg(feature = "text")]
    #[error("{place}: the {side} sentence: {source}")]
    Tokenizer {
        /// The location of the pair: its number, or its file and line.
        place: String,
        /// `source` or `target`.
        side: &'static str,
        /// The tokenizer's error.
        source: Box<TextError>,
    },
    /// A weight, a filter or a dropout is out of range.
    #[error("`{key}` is {value}; it must be {expected}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// The value found.
        value: String,
        /// The rule that it breaks.
        expected: &'static str,
    },
    /// A file that is not text cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// File that was being read.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file was not written by [`PairCache`](crate::data::PairCache).
    #[error("{}: not a cache of pairs", path.display())]
    NotACache {
        /// The file.
        path: PathBuf,
    },
    /// The cache was written by another version.
    #[error("{}: a cache of pairs in format {found}; this version reads {known}", path.display())]
    CacheFormat {
        /// The cache.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that this version reads.
        known: u32,
    },
    /// The cache was cut off or changed after it was written.
    #[error(
        "{}: damaged cache of pairs: {problem}; remove the file to rebuild it",
        path.display()
    )]
    CacheDamaged {
        /// The cache.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The cache was built without [`CacheOptions::keep_text`](crate::data::CacheOptions::keep_text).
    #[error("{}: the cache contains no text; build it with `keep_text`", path.display())]
    NoText {
        /// The cache.
        path: PathBuf,
    },
    /// The cache was built with other tokenizers.
    #[error("{}: the cache was built with other tokenizers", path.display())]
    OtherTokenizers {
        /// The cache.
        path: PathBuf,
    },
    /// Any other error of an [`ExampleSource`](crate::data::ExampleSource).
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// The problem with a file that has only unusable pairs.
fn no_pair(unusable: &UnusablePairs) -> String {
    let mut problems = vec![String::from("no sentence pair")];
    problems.extend(unusable.left_out("pair"));
    problems.join("; ")
}

#[cfg(feature = "text")]
impl CorpusError {
    /// Checks a setting.
    pub(super) fn check(
        key: &'static str,
        value: impl ToString,
        in_range: bool,
        expected: &'static str,
    ) -> Result<(), Self> {
        match in_range {
            true => Ok(()),
            false => Err(Self::Setting {
                key,
                value: value.to_string(),
                expected,
            }),
        }
    }

    /// An input error at `path`.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
