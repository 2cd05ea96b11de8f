//! The bytes of a text, plain or gzip.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// The first bytes of a gzip file.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// First bytes of other compressed formats, where `#` is a digit; the program of each format; and the command that
/// decompresses it.
const OTHERS: [(&[u8], &str, &str); 5] = [
    (b"BZh#1AY&SY", "bzip2", "bzip2 -d"),
    (b"\xfd7zXZ\0", "xz", "xz -d"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    (b"PK\x03\x04", "zip", "unzip"),
];

/// An input is compressed, but not by gzip.
#[derive(Debug, thiserror::Error)]
#[error("is compressed by {0}; decompress it first: {1}")]
struct Compressed(&'static str, &'static str);

/// Whether an error of [`TextReader::new`] means that the input is compressed, but not by gzip.
pub(crate) fn is_compressed(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|error| error.is::<Compressed>())
}

/// Whether `bytes` begin with `magic`, over their common length.
fn agree(magic: &[u8], bytes: &[u8]) -> bool {
    magic.iter().zip(bytes).all(|(magic, byte)| match magic {
        b'#' => byte.is_ascii_digit(),
        _ => magic == byte,
    })
}

/// The bytes of a text. A gzip input, detected by its first bytes, is decompressed.
///
/// ```
/// use std::io::BufRead;
///
/// use transformer_train::data::TextReader;
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
    /// Reads the first bytes of an input. It reads no more of them than needed, so that an interactively typed
    /// line can be answered at once.
    ///
    /// # Errors
    /// When they cannot be read, or when the input is compressed, but not by gzip; the error names the program
    /// that decompresses it.
    pub fn new(mut input: impl BufRead + Send + 'static) -> io::Result<Self> {
        let mut start = Vec::new();
        let is_begun =
            |magic: &[u8], start: &[u8]| start.len() < magic.len() && agree(magic, start);
        while is_begun(GZIP, &start) || OTHERS.iter().any(|(magic, ..)| is_begun(magic, &start)) {
            if input.by_ref().take(1).read_to_end(&mut start)? == 0 {
                break;
            }
        }
        let is = |magic: &[u8]| start.len() == magic.len() && agree(magic, &start);
        if let Some((_, program, command)) = OTHERS.iter().find(|(magic, ..)| is(magic)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                Compressed(program, command),
            ));
        }
        let is_gzip = is(GZIP);
        let whole = Cursor::new(start).chain(input);
        Ok(Self {
            bytes: match is_gzip {
                true => Box::new(BufReader::new(MultiGzDecoder::new(whole))),
                false => Box::new(whole),
            },
            is_gzip,
        })
    }

    /// Whether the input is compressed. A read error may then be caused by its contents.
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
        // Byte by byte, as a pipe may deliver it.
        let mut reader = TextReader::new(BufReader::with_capacity(1, Cursor::new(bytes))).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (reader.is_gzip(), text)
    }

    #[test]
    fn plain_and_compressed_text_are_read_whole() {
        for text in [
            "",
            "\n",
            "o",
            "one\ntwo",
            "\u{1f}x\n",
            "BZh\n1",
            "BZh91",
            "P",
            "PK\n",
        ] {
            assert_eq!(read(text.into()), (false, text.to_owned()));
            assert_eq!(read(gzip(text)), (true, text.to_owned()));
        }
        // Files that were compressed separately and concatenated.
        let both = [gzip("one\n"), gzip("two\n")].concat();
        assert_eq!(read(both), (true, "one\ntwo\n".to_owned()));
    }
}
