//! The bytes of a text, plain or gzip.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The bytes of a text. Where the input is compressed by gzip, which its first bytes show, it is
/// decompressed.
///
/// ```
/// use std::io::BufRead;
///
/// use transformer_train::TextReader;
///
/// # fn main() -> std::io::Result<()> {
/// let text = TextReader::new("one\ntwo\n".as_bytes())?;
/// assert!(!text.is_gzip());
/// assert_eq!(text.lines().collect::<Result<Vec<_>, _>>()?, ["one", "two"]);
/// # Ok(())
/// # }
/// ```
pub struct TextReader {
    bytes: Box<dyn BufRead + Send>,
    is_gzip: bool,
}

impl TextReader {
    /// Reads the first bytes of an input: no more of them than it must, so that a line that somebody types
    /// can be answered at once.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn new(mut input: impl BufRead + Send + 'static) -> io::Result<Self> {
        let mut start = Vec::with_capacity(GZIP_MAGIC.len());
        while start.len() < GZIP_MAGIC.len() && GZIP_MAGIC.starts_with(&start) {
            if input.by_ref().take(1).read_to_end(&mut start)? == 0 {
                break;
            }
        }
        let is_gzip = start == GZIP_MAGIC;
        let whole = Cursor::new(start).chain(input);
        Ok(Self {
            bytes: match is_gzip {
                true => Box::new(BufReader::new(MultiGzDecoder::new(whole))),
                false => Box::new(whole),
            },
            is_gzip,
        })
    }

    /// Whether the input is compressed: an error of reading may then be one of its contents.
    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }
}

impl Read for TextReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer)
    }
}

impl BufRead for TextReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.bytes.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.bytes.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: Vec<u8>) -> (bool, String) {
        // As a pipe may give it: byte by byte.
        let mut reader = TextReader::new(BufReader::with_capacity(1, Cursor::new(bytes))).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (reader.is_gzip(), text)
    }

    #[test]
    fn plain_and_compressed_text_are_read_whole() {
        for text in ["", "\n", "o", "one\ntwo", "\u{1f}x\n"] {
            assert_eq!(read(text.into()), (false, text.to_owned()));
            assert_eq!(read(gzip(text)), (true, text.to_owned()));
        }
        // Files that were compressed one by one, and concatenated.
        let both = [gzip("one\n"), gzip("two\n")].concat();
        assert_eq!(read(both), (true, "one\ntwo\n".to_owned()));
    }
}
