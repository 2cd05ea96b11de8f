//! Sentence pairs, read from their files one by one.

use std::path::Path;

use crate::data::corpora::corpus::Pair;
use crate::data::corpora::lines::{Line, Lines, sentence, trimmed};
use crate::data::corpora::text_lines::MAX_LINE_BYTES;
use crate::data::corpora::unusable::UnusablePairs;
use crate::data::error::CorpusError;

/// The pairs of a file of tab-separated text, or of two line-aligned files.
///
/// Unusable pairs are skipped and counted, by the same rules in both formats. A file without a usable pair ends in
/// an error. Nothing follows an error.
pub(crate) struct PairReader {
    format: Format,
    unusable: UnusablePairs,
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
            unusable: UnusablePairs::default(),
            found: false,
            ended: false,
        }
    }

    /// The file; of two, the file of the source sentences.
    pub fn path(&self) -> &Path {
        &self.lines().path
    }

    /// The line of the last pair read, from 1.
    pub fn line(&self) -> usize {
        self.lines().number()
    }

    /// The pairs skipped so far.
    pub fn unusable(&self) -> UnusablePairs {
        self.unusable
    }

    fn lines(&self) -> &Lines {
        match &self.format {
            Format::Tsv(lines) => lines,
            Format::Parallel { sources, .. } => sources,
        }
    }

    fn read(&mut self) -> Result<Option<Pair>, CorpusError> {
        let unusable = &mut self.unusable;
        let pair = match &mut self.format {
            Format::Tsv(lines) => tab_separated(lines, unusable)?,
            Format::Parallel { sources, targets } => aligned(sources, targets, unusable)?,
        };
        self.found |= pair.is_some();
        match self.found {
            true => Ok(pair),
            false => Err(CorpusError::Empty {
                path: self.path().to_owned(),
                unusable: self.unusable,
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

/// The next pair of a tab-separated file.
fn tab_separated(
    lines: &mut Lines,
    unusable: &mut UnusablePairs,
) -> Result<Option<Pair>, CorpusError> {
    while let Some(line) = lines.next()? {
        let Line::Text(text) = line else {
            unusable.oversized += 1;
            continue;
        };
        if trimmed(text).is_empty() {
            continue;
        }
        let mut columns = text.split('\t').map(sentence);
        let (Some(source), Some(target)) = (columns.next(), columns.next()) else {
            return Err(CorpusError::NoTab {
                path: lines.path.clone(),
                line: lines.number(),
            });
        };
        if let Some(pair) = usable(source, target, unusable) {
            return Ok(Some(pair));
        }
    }
    Ok(None)
}

/// The next pair of two line-aligned files.
fn aligned(
    sources: &mut Lines,
    targets: &mut Lines,
    unusable: &mut UnusablePairs,
) -> Result<Option<Pair>, CorpusError> {
    loop {
        match (sources.next()?, targets.next()?) {
            (Some(Line::Text(source)), Some(Line::Text(target))) => {
                if let Some(pair) = usable(sentence(source), sentence(target), unusable) {
                    return Ok(Some(pair));
                }
            }
            (Some(_), Some(_)) => unusable.oversized += 1,
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

/// The pair of two sentences, unless one is empty or they are too long for a line of tab-separated text. An
/// unusable pair is counted, unless both are empty.
fn usable(source: String, target: String, unusable: &mut UnusablePairs) -> Option<Pair> {
    match (source.is_empty(), target.is_empty()) {
        (true, true) => {}
        (false, false) if source.len() + target.len() < MAX_LINE_BYTES => {
            return Some(Pair { source, target });
        }
        (false, false) => unusable.oversized += 1,
        _ => unusable.empty_side += 1,
    }
    None
}
