//! Files of lexical shortlists, in Marian's binary format.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 8 | the checksum of the numbers that follow |
//! | 4 · 8 | frequent tokens, tokens per list, number of offsets, number of listed tokens |
//! | 8 per offset | where each source token's list begins, in tokens, and the end of the last |
//! | 4 per token | the lists |
//!
//! All numbers are little-endian.

use std::path::Path;

use crate::decoding::Shortlist;
use crate::formats::error::ModelError;
use crate::formats::files::{read, replace_file_with};

/// The first number of a file.
const MAGIC: u64 = 0xF11A_48D5_0134_17F5;
/// Bytes before the offsets.
const HEADER: usize = 6 * 8;
/// Bytes before those of which the checksum is.
const UNCHECKED: usize = 2 * 8;

impl Shortlist {
    /// Reads a file of Marian, such as Firefox's `lex.….bin`. The file does not say whether source tokens are
    /// candidates, too: see [`with_source_tokens`](Self::with_source_tokens).
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged or no shortlist.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let bytes = read(path).map_err(ModelError::io(path))?;
        parse(&bytes).map_err(|problem| ModelError::Weights {
            path: path.to_owned(),
            problem: format!("not a binary shortlist of Marian: {problem}"),
        })
    }

    /// Writes [`to_bytes`](Self::to_bytes) to a file, which replaces an existing one.
    ///
    /// # Errors
    /// When the file cannot be written; an existing one is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        let path = path.as_ref();
        replace_file_with(path, self.to_bytes()).map_err(ModelError::io(path))
    }

    /// The bytes of a file of Marian. Whether source tokens are candidates is not among them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let lists = self.lists();
        let longest = self.lists().map(<[u32]>::len).max().unwrap_or(0);
        let listed: usize = self.lists().map(<[u32]>::len).sum();
        let mut checked = Vec::with_capacity(HEADER + 8 * lists.len() + 4 * listed);
        let sizes = [longest, lists.len() + 1, listed].map(|size| size as u64);
        for number in [u64::from(self.frequent())].into_iter().chain(sizes) {
            checked.extend(number.to_le_bytes());
        }
        let mut offset = 0_u64;
        checked.extend(offset.to_le_bytes());
        for list in self.lists() {
            offset += list.len() as u64;
            checked.extend(offset.to_le_bytes());
        }
        let tokens = self.lists().flatten();
        checked.extend(tokens.flat_map(|token| token.to_le_bytes()));
        let head = [MAGIC, checksum(&checked)].map(u64::to_le_bytes).concat();
        [head, checked].concat()
    }
}

fn parse(bytes: &[u8]) -> Result<Shortlist, String> {
    let Some((header, body)) = bytes.split_at_checked(HEADER) else {
        return Err(format!("it has {} bytes", bytes.len()));
    };
    let mut numbers = words(header);
    let mut number = || numbers.next().expect("the header has six numbers");
    if number() != MAGIC {
        return Err("it begins with other bytes".to_owned());
    }
    let (expected, frequent, _) = (number(), number(), number());
    let (offsets, listed) = (number(), number());
    let sizes = offsets.checked_mul(8).zip(listed.checked_mul(4));
    let (of_offsets, of_lists) = sizes.ok_or("its sizes are too large")?;
    if Some(body.len() as u64) != of_offsets.checked_add(of_lists) {
        return Err(format!(
            "{} bytes follow its header, which announces {offsets} offsets and {listed} tokens",
            body.len()
        ));
    }
    let found = checksum(&bytes[UNCHECKED..]);
    if found != expected {
        return Err(format!("its checksum is {found:#x}, not {expected:#x}"));
    }
    let (offsets, lists) = body.split_at(of_offsets as usize);
    let offsets: Vec<usize> = words(offsets).map(|offset| offset as usize).collect();
    let lists = lists.as_chunks().0.iter();
    let lists = lists.map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let frequent = u32::try_from(frequent).map_err(|_| format!("{frequent} frequent tokens"))?;
    Shortlist::from_offsets(frequent, &offsets, lists).map_err(|error| error.to_string())
}

/// Marian's checksum: the hash of all whole words.
fn checksum(bytes: &[u8]) -> u64 {
    words(bytes).fold(0, |seed: u64, word| {
        let mixed = word
            .wrapping_add(0x9e37_79b9)
            .wrapping_add(seed << 6)
            .wrapping_add(seed >> 2);
        seed ^ mixed
    })
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortlist() -> Shortlist {
        Shortlist::new(2, &[&[7, 5, 9][..], &[], &[6]])
    }

    #[test]
    fn a_saved_shortlist_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lex.bin");
        let none = Shortlist::new(0, &[[]; 0]);
        for shortlist in [shortlist(), none, Shortlist::new(9, &[[3]])] {
            shortlist.save(&path).unwrap();
            assert_eq!(Shortlist::load(&path).unwrap(), shortlist);
        }
    }

    /// The bytes that Marian writes: computed by hand, and the checksum by another program.
    #[test]
    fn the_bytes_are_marian_s() {
        let bytes = shortlist().to_bytes();
        assert_eq!(bytes.len(), 48 + 4 * 8 + 4 * 4);
        let header: Vec<u64> = words(&bytes[..HEADER]).collect();
        assert_eq!(header, [MAGIC, CHECKSUM, 2, 3, 4, 4]);
        assert_eq!(words(&bytes[48..80]).collect::<Vec<u64>>(), [0, 3, 3, 4]);
        let tokens = [5_u32, 7, 9, 6].map(u32::to_le_bytes).concat();
        assert_eq!(bytes[80..], tokens);
    }

    /// Of the file in [`the_bytes_are_marian_s`], by a program in Python.
    const CHECKSUM: u64 = 0x8a48_4359_7eea_6dc7;

    #[test]
    fn damaged_files_are_refused() {
        let whole = shortlist().to_bytes();
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged).is_err(), "byte {at}");
        }
        let refused = |header: [u64; 6], body: &[u64]| {
            let mut bytes = [&header[..], body].concat();
            bytes[1] = checksum(
                &bytes[2..]
                    .iter()
                    .flat_map(|n| n.to_le_bytes())
                    .collect::<Vec<_>>(),
            );
            let bytes: Vec<u8> = bytes.iter().flat_map(|n| n.to_le_bytes()).collect();
            parse(&bytes).unwrap_err()
        };
        let problem = refused([MAGIC, 0, 1, 1, u64::MAX, 0], &[]);
        assert_eq!(problem, "its sizes are too large");
        let problem = refused([MAGIC, 0, 1, 1, 2, 0], &[0, 1]);
        assert_eq!(
            problem,
            "list 0 begins at 0 and ends at 1, of 0 tokens in all"
        );
        let problem = refused([MAGIC, 0, 1 << 32, 1, 0, 0], &[]);
        assert_eq!(problem, "4294967296 frequent tokens");
    }
}
