//! The lines of a text file, plain or gzip.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::error::CorpusError;
use super::text_reader::TextReader;

/// Longest line that is accepted as text: it bounds the memory that a damaged file can claim.
const MAX_LINE_BYTES: usize = 1 << 20;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a text file of one sentence a line, plain or gzip, as [`Corpus`](crate::Corpus) reads its
/// files. Blank lines are skipped.
///
/// # Errors
/// When the file cannot be read to its end, or a line is not UTF-8 or too long.
pub fn read_sentences(path: impl AsRef<Path>) -> Result<Vec<String>, CorpusError> {
    let mut lines = Lines::open(path.as_ref())?;
    let mut sentences = Vec::new();
    while let Some(line) = lines.next()? {
        let sentence = sentence(line);
        if !sentence.is_empty() {
            sentences.push(sentence);
        }
    }
    Ok(sentences)
}

/// The sentence that a column or a line holds.
pub(super) fn sentence(text: &str) -> String {
    trimmed(text).replace('\t', " ")
}

/// Removes white space and byte-order marks, which are also inside files that were concatenated.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == BYTE_ORDER_MARK)
}

/// The lines of a file, plain or gzip, one in memory at a time.
pub(super) struct Lines {
    path: PathBuf,
    reader: TextReader,
    bytes: Vec<u8>,
    /// The line that was read last, from 1.
    pub number: usize,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Self, CorpusError> {
        let path = path.to_owned();
        if path.is_dir() {
            return Err(CorpusError::Directory { path });
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) => return Err(CorpusError::Open { path, source }),
        };
        let reader = match TextReader::new(BufReader::new(file)) {
            Ok(reader) => reader,
            Err(source) => {
                return Err(CorpusError::Read {
                    path,
                    line: 1,
                    source,
                });
            }
        };
        Ok(Self {
            path,
            reader,
            bytes: Vec::new(),
            number: 0,
        })
    }

    /// The next line without its line feed, or `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<&str>, CorpusError> {
        if !self.read_line()? {
            return Ok(None);
        }
        match str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(CorpusError::NotUtf8 {
                path: self.path.clone(),
                line: self.number,
                byte: error.valid_up_to() + 1,
            }),
        }
    }

    /// Reads the rest and returns the number of lines of the file.
    pub fn count_to_end(&mut self) -> Result<usize, CorpusError> {
        while self.read_line()? {}
        Ok(self.number)
    }

    /// Reads one line into `bytes`; `false` at the end of the file.
    fn read_line(&mut self) -> Result<bool, CorpusError> {
        self.bytes.clear();
        let line = self.number + 1;
        let path = || self.path.clone();
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES as u64 + 1);
        if let Err(source) = limited.read_until(b'\n', &mut self.bytes) {
            let path = path();
            return Err(if self.reader.is_gzip() {
                CorpusError::Gzip { path, line, source }
            } else {
                CorpusError::Read { path, line, source }
            });
        }
        if self.bytes.is_empty() {
            return Ok(false);
        }
        if self.bytes.last() == Some(&b'\n') {
            self.bytes.pop();
        }
        if self.bytes.len() > MAX_LINE_BYTES {
            return Err(CorpusError::LineTooLong {
                path: path(),
                line,
                limit: MAX_LINE_BYTES,
            });
        }
        self.number = line;
        Ok(true)
    }
}
