//! Sentence pairs, read from their files one by one.

use std::path::Path;

use super::corpus::Pair;
use super::error::CorpusError;
use super::lines::{Lines, sentence, trimmed};

/// The pairs of a file of tab-separated text, or of two line-aligned files.
///
/// A file without a pair ends in an error. Nothing follows an error.
pub(super) struct PairReader {
    format: Format,
    found: bool,
    ended: bool,
}

enum Format {
    Tsv(Lines),
    Parallel { sources: Lines, targets: Lines },
}

impl PairReader {
    pub fn tsv(path: &Path) -> Result<Self, CorpusError> {
        Ok(Self::new(Format::Tsv(Lines::open(path)?)))
    }

    pub fn parallel(source_path: &Path, target_path: &Path) -> Result<Self, CorpusError> {
        Ok(Self::new(Format::Parallel {
            sources: Lines::open(source_path)?,
            targets: Lines::open(target_path)?,
        }))
    }

    fn new(format: Format) -> Self {
        Self {
            format,
            found: false,
            ended: false,
        }
    }

    /// The file; of two, that of the source sentences.
    pub fn path(&self) -> &Path {
        &self.lines().path
    }

    /// The line of the pair that was read last, from 1.
    #[cfg(feature = "text")]
    pub fn line(&self) -> usize {
        self.lines().number
    }

    fn lines(&self) -> &Lines {
        match &self.format {
            Format::Tsv(lines) => lines,
            Format::Parallel { sources, .. } => sources,
        }
    }

    fn read(&mut self) -> Result<Option<Pair>, CorpusError> {
        let pair = match &mut self.format {
            Format::Tsv(lines) => tab_separated(lines)?,
            Format::Parallel { sources, targets } => aligned(sources, targets)?,
        };
        self.found |= pair.is_some();
        match self.found {
            true => Ok(pair),
            false => Err(CorpusError::Empty {
                path: self.path().to_owned(),
            }),
        }
    }
}

impl Iterator for PairReader {
    type Item = Result<Pair, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let pair = self.read().transpose();
        self.ended = !matches!(pair, Some(Ok(_)));
        pair
    }
}

/// The pair of the next line that is not blank.
fn tab_separated(lines: &mut Lines) -> Result<Option<Pair>, CorpusError> {
    while let Some(text) = lines.next()? {
        if trimmed(text).is_empty() {
            continue;
        }
        let mut columns = text.split('\t').map(sentence);
        let (Some(source), Some(target)) = (columns.next(), columns.next()) else {
            return Err(CorpusError::NoTab {
                path: lines.path.clone(),
                line: lines.number,
            });
        };
        for (side, text) in [("source", &source), ("target", &target)] {
            if text.is_empty() {
                return Err(CorpusError::EmptySide {
                    path: lines.path.clone(),
                    line: lines.number,
                    side,
                });
            }
        }
        return Ok(Some(Pair { source, target }));
    }
    Ok(None)
}

/// The pair of the next lines neither of which is blank.
fn aligned(sources: &mut Lines, targets: &mut Lines) -> Result<Option<Pair>, CorpusError> {
    loop {
        match (sources.next()?, targets.next()?) {
            (Some(source), Some(target)) => {
                let (source, target) = (sentence(source), sentence(target));
                if !source.is_empty() && !target.is_empty() {
                    return Ok(Some(Pair { source, target }));
                }
            }
            (None, None) => return Ok(None),
            _ => {
                return Err(CorpusError::UnequalLines {
                    source_lines: sources.count_to_end()?,
                    source_path: sources.path.clone(),
                    target_lines: targets.count_to_end()?,
                    target_path: targets.path.clone(),
                });
            }
        }
    }
}
