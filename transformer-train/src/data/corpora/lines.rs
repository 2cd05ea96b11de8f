//! The lines of a text file, plain or gzip.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use crate::data::corpora::text_lines::{BYTE_ORDER_MARK, MAX_LINE_BYTES, TextLine, TextLines};
use crate::data::corpora::text_reader::{TextReader, is_compressed};
use crate::data::error::CorpusError;

/// Whether a path is `-`, which means the standard stream: standard input for a file that is read. A file of that
/// name is `./-`.
pub fn is_standard_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file's path as messages show it.
pub(crate) fn named(path: &Path) -> PathBuf {
    match is_standard_stream(path) {
        true => "standard input".into(),
        false => path.to_owned(),
    }
}

/// Reads a text file with one sentence per line, plain or gzip, as [`Corpus`](crate::data::Corpus) reads its
/// files. Blank lines are skipped.
///
/// # Errors
/// When the file cannot be read completely, or a line is not UTF-8 or too long.
pub fn read_sentences(path: impl AsRef<Path>) -> Result<Vec<String>, CorpusError> {
    let mut lines = Lines::open(path.as_ref())?;
    let mut sentences = Vec::new();
    while let Some(line) = lines.next()? {
        let Line::Text(text) = line else {
            return Err(CorpusError::LineTooLong {
                path: lines.path.clone(),
                line: lines.number(),
                limit: MAX_LINE_BYTES,
            });
        };
        let sentence = sentence(text);
        if !sentence.is_empty() {
            sentences.push(sentence);
        }
    }
    Ok(sentences)
}

/// The sentence in a column or a line.
pub(crate) fn sentence(text: &str) -> String {
    trimmed(text).replace('\t', " ")
}

/// A sentence without surrounding white space and byte-order marks. A mark is at the beginning of some files, and
/// inside files that were concatenated from these.
///
/// ```
/// assert_eq!(transformer_train::data::trimmed("\u{feff} où \r"), "où");
/// ```
pub fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == BYTE_ORDER_MARK)
}

/// A line as it was read.
pub(crate) enum Line<'a> {
    /// Its text, without the line feed.
    Text(&'a str),
    /// It has more than [`MAX_LINE_BYTES`], and was not kept.
    TooLong,
}

/// The lines of a file, plain or gzip, one in memory at a time.
pub(crate) struct Lines {
    pub path: PathBuf,
    text: TextLines,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Self, CorpusError> {
        let text = match is_standard_stream(path) {
            true => TextReader::new(BufReader::new(io::stdin())),
            false => TextReader::new(BufReader::new(open(path)?)),
        };
        let path = named(path);
        match text {
            Ok(text) => Ok(Self {
                path,
                text: TextLines::new(text),
            }),
            Err(source) if is_compressed(&source) => Err(CorpusError::Compressed { path, source }),
            Err(source) => Err(CorpusError::Read {
                path,
                line: 1,
                source,
            }),
        }
    }

    /// The number of the last line read, from 1.
    pub fn number(&self) -> usize {
        self.text.number()
    }

    /// The next line, or `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, CorpusError> {
        let (path, number, is_gzip) = (&self.path, self.number() + 1, self.text.is_gzip());
        let line = self.text.next_line();
        let line = line.map_err(|source| unreadable(path, number, is_gzip, source))?;
        Ok(match line {
            Some(TextLine::Text(text)) => Some(Line::Text(text)),
            Some(TextLine::TooLong) => Some(Line::TooLong),
            Some(TextLine::NotUtf8 { byte }) => {
                return Err(CorpusError::NotUtf8 {
                    path: path.clone(),
                    line: number,
                    byte,
                });
            }
            None => None,
        })
    }

    /// Reads the rest, whatever it contains, and returns the number of lines of the file.
    pub fn count_to_end(&mut self) -> Result<usize, CorpusError> {
        loop {
            let (number, is_gzip) = (self.number() + 1, self.text.is_gzip());
            let found = self.text.next_line().map(|line| line.is_some());
            if !found.map_err(|source| unreadable(&self.path, number, is_gzip, source))? {
                return Ok(self.number());
            }
        }
    }
}

fn open(path: &Path) -> Result<File, CorpusError> {
    let named = path.to_owned();
    if path.is_dir() {
        return Err(CorpusError::Directory { path: named });
    }
    File::open(path).map_err(|source| CorpusError::Open {
        path: named,
        source,
    })
}

/// The error of a file that cannot be read beyond this line.
fn unreadable(path: &Path, line: usize, is_gzip: bool, source: io::Error) -> CorpusError {
    let path = path.to_owned();
    match is_gzip {
        true => CorpusError::Gzip { path, line, source },
        false => CorpusError::Read { path, line, source },
    }
}
