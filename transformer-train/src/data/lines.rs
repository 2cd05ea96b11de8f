//! The lines of a text file, plain or gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::error::CorpusError;
use super::text_reader::TextReader;

/// Longest line that is accepted as text: it bounds the memory that a damaged file can claim.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

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
        let Line::Text(text) = line else {
            return Err(CorpusError::LineTooLong {
                path: lines.path.clone(),
                line: lines.number,
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

/// The sentence that a column or a line holds.
pub(super) fn sentence(text: &str) -> String {
    trimmed(text).replace('\t', " ")
}

/// Removes white space and byte-order marks, which are also inside files that were concatenated.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == BYTE_ORDER_MARK)
}

/// A line as it was read.
pub(super) enum Line<'a> {
    /// Its text, without the line feed.
    Text(&'a str),
    /// It has more than [`MAX_LINE_BYTES`], and was not kept.
    TooLong,
}

/// The lines of a file, plain or gzip, one in memory at a time.
pub(super) struct Lines {
    pub path: PathBuf,
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

    /// The next line, or `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, CorpusError> {
        if !self.read_line()? {
            return Ok(None);
        }
        if self.bytes.len() > MAX_LINE_BYTES {
            return Ok(Some(Line::TooLong));
        }
        match str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some(Line::Text(text))),
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

    /// Reads one line into `bytes`, without its line feed; `false` at the end of the file. Of a line that is too
    /// long, one byte more than the limit is kept.
    fn read_line(&mut self) -> Result<bool, CorpusError> {
        self.bytes.clear();
        let line = self.number + 1;
        if let Err(source) = self.read_bytes() {
            let path = self.path.clone();
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
        self.number = line;
        Ok(true)
    }

    fn read_bytes(&mut self) -> io::Result<()> {
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES as u64 + 1);
        limited.read_until(b'\n', &mut self.bytes)?;
        if self.bytes.len() > MAX_LINE_BYTES && self.bytes.last() != Some(&b'\n') {
            self.reader.skip_until(b'\n')?;
        }
        Ok(())
    }
}
