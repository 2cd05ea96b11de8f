//! Parallel text in files of any size, read from the beginning each time, with one pair in memory at a time.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::data::corpora::corpus::{Corpus, Pair};
use crate::data::corpora::hold_out::choose;
use crate::data::corpora::lines::{is_standard_stream, named};
use crate::data::corpora::reader::PairReader;
use crate::data::corpora::text_set::TextSet;
use crate::data::corpora::unusable::UnusablePairs;
use crate::data::corpora::writer::write_tsv;
use crate::data::error::CorpusError;

/// The location of a corpus. The path `-` is standard input, which can be read only once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CorpusFile {
    /// A file of `source<TAB>target` lines, read as [`Corpus::from_tsv`] reads it.
    Tsv(PathBuf),
    /// Two line-aligned files, read as [`Corpus::from_parallel`] reads them.
    Parallel {
        /// The source sentences.
        source: PathBuf,
        /// Their translations.
        target: PathBuf,
    },
}

impl CorpusFile {
    /// A file of `source<TAB>target` lines.
    pub fn tsv(path: impl Into<PathBuf>) -> Self {
        Self::Tsv(path.into())
    }

    /// Two line-aligned files.
    pub fn parallel(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self::Parallel {
            source: source.into(),
            target: target.into(),
        }
    }

    /// Its one or two paths.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Tsv(path) => vec![path],
            Self::Parallel { source, target } => vec![source, target],
        }
    }

    fn open(&self) -> Result<PairReader, CorpusError> {
        match self {
            Self::Tsv(path) => PairReader::tsv(path),
            Self::Parallel { source, target } => PairReader::parallel(source, target),
        }
    }

    /// Opens it for one of several passes.
    pub(crate) fn open_again(&self) -> Result<PairReader, CorpusError> {
        self.check_regular()?;
        self.open()
    }

    /// Checks that it can be read again: a pipe would be empty, or wait for a writer. A path that does not exist
    /// or is a directory is reported when it is opened.
    pub(crate) fn check_regular(&self) -> Result<(), CorpusError> {
        let is_stream = |path: &&Path| {
            is_standard_stream(path)
                || fs::metadata(path)
                    .is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
        };
        match self.paths().into_iter().find(is_stream) {
            Some(path) => Err(CorpusError::NotRegular { path: named(path) }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CorpusFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tsv(path) => write!(f, "{}", path.display()),
            Self::Parallel { source, target } => {
                write!(f, "{} and {}", source.display(), target.display())
            }
        }
    }
}

/// Several corpora in files, each with a weight: how often its pairs occur in an epoch.
///
/// It holds no pairs: every method reads the files again, so they must be regular files, not pipes. Only
/// [`read`](Self::read) accepts both.
///
/// ```no_run
/// use transformer_train::data::{CorpusFile, CorpusFiles};
///
/// # fn main() -> Result<(), transformer_train::data::CorpusError> {
/// let files = CorpusFiles::new()
///     .with(CorpusFile::tsv("web.tsv.gz"), 1.0)
///     .with(CorpusFile::parallel("talks.en", "talks.fr"), 2.5);
/// let (train, valid) = files.hold_out(1000, 0)?;
/// for pair in train.pairs() {
///     println!("{}", pair?.source);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CorpusFiles {
    corpora: Vec<(CorpusFile, f64)>,
    held_out: HashSet<String>,
}

impl CorpusFiles {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a corpus after the others. Its pairs occur `weight` times in each epoch of training: with a weight of
    /// 2.5, all occur twice, and half of them, drawn anew for each epoch, a third time.
    pub fn with(mut self, file: CorpusFile, weight: f64) -> Self {
        self.corpora.push((file, weight));
        self
    }

    /// The files, with their weights.
    pub fn corpora(&self) -> &[(CorpusFile, f64)] {
        &self.corpora
    }

    /// The pairs of all files in order, each once whatever its weight, without pairs whose source is held out.
    /// After an error, the rest of its file is skipped.
    pub fn pairs(&self) -> impl Iterator<Item = Result<Pair, CorpusError>> + Send {
        let pairs = self.corpora.iter().flat_map(|(file, _)| {
            let (reader, error) = match file.open_again() {
                Ok(reader) => (Some(reader), None),
                Err(error) => (None, Some(Err(error))),
            };
            reader.into_iter().flatten().chain(error)
        });
        pairs.filter(|pair| match pair {
            Ok(pair) => !self.holds_out(pair),
            Err(_) => true,
        })
    }

    /// The [pairs](Self::pairs) in memory, and the number of pairs that the reader skipped. Reads each file once.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&self) -> Result<(Corpus, UnusablePairs), CorpusError> {
        let (corpus, _, unusable) = self.read_with_places()?;
        Ok((corpus, unusable))
    }

    /// [`read`](Self::read), and the location of each pair, for messages about it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read_with_places(&self) -> Result<(Corpus, PairPlaces, UnusablePairs), CorpusError> {
        let mut pairs = Vec::new();
        let mut places = PairPlaces::default();
        let mut unusable = UnusablePairs::default();
        for (file, _) in &self.corpora {
            let mut reader = file.open()?;
            places.files.push((reader.path().to_owned(), pairs.len()));
            while let Some(pair) = reader.next() {
                let pair = pair?;
                if !self.holds_out(&pair) {
                    pairs.push(pair);
                    places.lines.push(reader.line());
                }
            }
            unusable += reader.unusable();
        }
        Ok((pairs.into_iter().collect(), places, unusable))
    }

    /// The file and the line, from 1, of the first pair equal to `pair`, for a message about it; `None` if there
    /// is none or a file cannot be read. Reads the files.
    pub fn place_of(&self, pair: &Pair) -> Option<(PathBuf, usize)> {
        self.corpora.iter().find_map(|(file, _)| {
            let mut reader = file.open_again().ok()?;
            while let Some(Ok(found)) = reader.next() {
                if found == *pair {
                    return Some((reader.path().to_owned(), reader.line()));
                }
            }
            None
        })
    }

    /// Calls `read` with both sides of each pair, interleaved: the text on which a tokenizer is trained.
    ///
    /// ```no_run
    /// # use transformer_train::data::{CorpusFile, CorpusFiles};
    /// # fn main() -> Result<(), transformer_train::data::CorpusError> {
    /// let files = CorpusFiles::new().with(CorpusFile::tsv("web.tsv.gz"), 1.0);
    /// let bytes: usize = files.with_sentences(|sentences| sentences.map(|text| text.len()).sum())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a file cannot be read; the sentences end there, and the result of `read` is dropped.
    pub fn with_sentences<T>(
        &self,
        read: impl FnOnce(&mut (dyn Iterator<Item = String> + Send)) -> T,
    ) -> Result<T, CorpusError> {
        let mut sentences = Sentences {
            pairs: self.pairs(),
            target: None,
            error: None,
        };
        let result = read(&mut sentences);
        match sentences.error {
            Some(error) => Err(error),
            None => Ok(result),
        }
    }

    /// Holds `n_sources` distinct source sentences out of training, as [`Corpus::hold_out`] does:
    /// `(training, validation)`. The same text and seed give the same split.
    ///
    /// Reads the files twice. Until it returns, memory holds a hash of each distinct source.
    ///
    /// # Errors
    /// [`CorpusError::TooFewSources`] when no sentence would be left for training; when a file cannot be read.
    pub fn hold_out(self, n_sources: usize, seed: u64) -> Result<(Self, Corpus), CorpusError> {
        let chosen = choose(self.first_pairs_by_source()?, n_sources, seed)?;
        let mut chosen = chosen.into_iter().peekable();
        let mut validation = Vec::with_capacity(n_sources);
        for (position, pair) in self.pairs().enumerate() {
            if chosen.peek().is_none() {
                break;
            }
            let pair = pair?;
            if chosen.next_if_eq(&position).is_some() {
                validation.push(pair);
            }
        }
        let validation: Corpus = validation.into_iter().collect();
        Ok((self.without_sources_of(&validation), validation))
    }

    /// The number of distinct source sentences; fewer can be [held out](Self::hold_out). Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn distinct_sources(&self) -> Result<usize, CorpusError> {
        Ok(self.first_pairs_by_source()?.len())
    }

    /// Writes the [pairs](Self::pairs) as [`Corpus::write_tsv`] does.
    ///
    /// # Errors
    /// When a file cannot be read or written, or a sentence would not be read back unchanged.
    pub fn write_tsv(&self, path: impl AsRef<Path>) -> Result<(), CorpusError> {
        write_tsv(path.as_ref(), self.pairs())
    }

    /// Also excludes all pairs whose source occurs in `held_out`.
    pub fn without_sources_of(mut self, held_out: &Corpus) -> Self {
        let sources = held_out.pairs().iter().map(|pair| pair.source.clone());
        self.held_out.extend(sources);
        self
    }

    /// Position of the first pair of each distinct source, ascending.
    fn first_pairs_by_source(&self) -> Result<Vec<usize>, CorpusError> {
        let mut seen = TextSet::default();
        let mut first_pairs = Vec::new();
        for (position, pair) in self.pairs().enumerate() {
            if seen.insert(pair?.source) {
                first_pairs.push(position);
            }
        }
        Ok(first_pairs)
    }

    /// Checks that each weight is positive and finite.
    #[cfg(feature = "text")]
    pub(crate) fn check_weights(&self) -> Result<(), CorpusError> {
        for (_, weight) in &self.corpora {
            let counts = *weight > 0.0 && weight.is_finite();
            CorpusError::check("weight", weight, counts, "positive and finite")?;
        }
        Ok(())
    }

    /// Whether a pair's source is held out.
    pub(crate) fn holds_out(&self, pair: &Pair) -> bool {
        self.held_out.contains(&pair.source)
    }

    /// The held-out sources, in an order that depends only on them.
    #[cfg(feature = "text")]
    pub(crate) fn held_out(&self) -> Vec<&str> {
        let mut sources: Vec<_> = self.held_out.iter().map(String::as_str).collect();
        sources.sort_unstable();
        sources
    }
}

/// The locations of a corpus' pairs in its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairPlaces {
    /// Each file, and the number of pairs before it.
    files: Vec<(PathBuf, usize)>,
    /// The line of each pair.
    lines: Vec<usize>,
}

impl PairPlaces {
    /// The file and the line, from 1, of pair `pair`, from 0. For two line-aligned files, it is the file of the
    /// sources.
    ///
    /// # Panics
    /// When `pair` is out of range.
    pub fn of(&self, pair: usize) -> (&Path, usize) {
        let line = self.lines[pair];
        let begun = self.files.partition_point(|(_, before)| *before <= pair);
        (&self.files[begun - 1].0, line)
    }
}

/// Both sides of each pair, interleaved, up to the first error.
struct Sentences<I> {
    pairs: I,
    target: Option<String>,
    error: Option<CorpusError>,
}

impl<I: Iterator<Item = Result<Pair, CorpusError>>> Iterator for Sentences<I> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.error.is_some() {
            return None;
        }
        if let Some(target) = self.target.take() {
            return Some(target);
        }
        match self.pairs.next()? {
            Ok(Pair { source, target }) => {
                self.target = Some(target);
                Some(source)
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}
