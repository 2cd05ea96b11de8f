//! The lines of a text, plain or gzip.

use std::io::{self, BufRead, Read};

use crate::data::corpora::text_reader::TextReader;

/// Maximum bytes of a line of text, without its line feed: it bounds the memory that a damaged file can claim.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Maximum bytes that are read to find the end of a longer line: a device may have none.
const MAX_SKIPPED_BYTES: u64 = 1 << 30;

/// The byte-order mark, with which some editors begin a file.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// The lines of a text, one in memory at a time. A byte-order mark at the beginning is not part of the first line.
///
/// ```
/// use transformer_train::data::{TextLine, TextLines, TextReader};
///
/// # fn main() -> std::io::Result<()> {
/// let mut lines = TextLines::new(TextReader::new("one\n\ntwo".as_bytes())?);
/// while let Some(line) = lines.next_line()? {
///     if let TextLine::Text(text) = line {
///         println!("{text}");
///     }
/// }
/// assert_eq!(lines.number(), 3);
/// # Ok(())
/// # }
/// ```
pub struct TextLines {
    text: TextReader,
    /// The last line, with its line feed.
    bytes: Vec<u8>,
    number: usize,
}

/// A line as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextLine<'a> {
    /// Its text, without the line feed.
    Text(&'a str),
    /// It is not UTF-8.
    NotUtf8 {
        /// The first invalid byte, from 1.
        byte: usize,
    },
    /// It has more than [`MAX_LINE_BYTES`], and was not kept.
    TooLong,
}

impl TextLines {
    /// The lines from the beginning of a text.
    pub fn new(text: TextReader) -> Self {
        Self {
            text,
            bytes: Vec::new(),
            number: 0,
        }
    }

    /// The number of lines read: the number of the last one, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether the text is compressed ([`TextReader::is_gzip`]).
    pub fn is_gzip(&self) -> bool {
        self.text.is_gzip()
    }

    /// The next line; `None` at the end of the text.
    ///
    /// # Errors
    /// When the text cannot be read any further.
    pub fn next_line(&mut self) -> io::Result<Option<TextLine<'_>>> {
        self.read()?;
        let (bytes, has_end) = match self.bytes.strip_suffix(b"\n") {
            Some(bytes) => (bytes, true),
            None => (self.bytes.as_slice(), false),
        };
        let line = match line(bytes) {
            TextLine::Text(text) if self.number == 0 => {
                TextLine::Text(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text))
            }
            line => line,
        };
        if line == TextLine::Text("") && !has_end {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(line))
    }

    /// Reads the bytes of the next line. Of a line that is too long, one byte more than the limit is kept.
    fn read(&mut self) -> io::Result<()> {
        self.bytes.clear();
        let mut limited = (&mut self.text).take(MAX_LINE_BYTES as u64 + 1);
        limited.read_until(b'\n', &mut self.bytes)?;
        if self.bytes.len() > MAX_LINE_BYTES && self.bytes.last() != Some(&b'\n') {
            let mut rest = (&mut self.text).take(MAX_SKIPPED_BYTES);
            rest.skip_until(b'\n')?;
            if rest.limit() == 0 {
                return Err(io::Error::other(format!(
                    "a line of more than {MAX_SKIPPED_BYTES} bytes"
                )));
            }
        }
        Ok(())
    }
}

/// The line of these bytes, without its line feed.
fn line(bytes: &[u8]) -> TextLine<'_> {
    if bytes.len() > MAX_LINE_BYTES {
        return TextLine::TooLong;
    }
    match str::from_utf8(bytes) {
        Ok(text) => TextLine::Text(text),
        Err(error) => TextLine::NotUtf8 {
            byte: error.valid_up_to() + 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::*;

    /// The lines of a text; a line that is not text becomes its problem, in brackets.
    fn lines(text: impl AsRef<[u8]>) -> Vec<String> {
        let reader = TextReader::new(Cursor::new(text.as_ref().to_vec())).unwrap();
        let mut lines = TextLines::new(reader);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            found.push(match line {
                TextLine::Text(text) => text.to_owned(),
                TextLine::NotUtf8 { byte } => format!("(byte {byte})"),
                TextLine::TooLong => "(too long)".to_owned(),
            });
        }
        assert_eq!(lines.number(), found.len());
        found
    }

    #[test]
    fn there_is_a_line_for_each_line_feed_and_one_for_the_rest() {
        assert!(lines("").is_empty());
        assert_eq!(lines("\n"), [""]);
        assert_eq!(
            lines("one\n\n two\r\nthree"),
            ["one", "", " two\r", "three"]
        );
        // Unicode's separators do not end a line.
        assert_eq!(
            lines("one\u{2028}two\u{85}\u{b}\n"),
            ["one\u{2028}two\u{85}\u{b}"]
        );
    }

    #[test]
    fn a_mark_at_the_beginning_is_no_text() {
        assert_eq!(lines("\u{feff}one\n\u{feff}two"), ["one", "\u{feff}two"]);
        assert_eq!(lines("\u{feff}\none"), ["", "one"]);
        assert!(lines("\u{feff}").is_empty());
    }

    /// As in /dev/zero.
    #[test]
    fn a_line_without_end_is_an_error() {
        let mut lines = TextLines::new(TextReader::new(BufReader::new(io::repeat(0))).unwrap());
        let error = lines.next_line().unwrap_err();
        assert_eq!(error.to_string(), "a line of more than 1073741824 bytes");
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_to_its_end() {
        let longest = "a".repeat(MAX_LINE_BYTES);
        let text = format!("{longest}\n{longest}a\ntwo");
        assert_eq!(lines(text), [longest, "(too long)".into(), "two".into()]);
        assert_eq!(
            lines(b"\xff\n\xef\xbb\xbfa\xff\ntwo"),
            ["(byte 1)", "(byte 5)", "two"]
        );
    }
}
