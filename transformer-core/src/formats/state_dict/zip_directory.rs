//! Reads the table of contents (central directory) of a ZIP archive of any size (Zip64). The crate `zip`, which writes
//! archives, reserves memory for as many files as an archive claims to have; here nothing is longer than the bytes
//! present.
//!
//! ```text
//! files, each after its own header
//! the table: per file its sizes, checksum, header position and name
//! the end record: where the table is; in a large archive after a 64-bit end record and its locator
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

const FILE: u64 = 0x0403_4b50;
const TABLE: u64 = 0x0201_4b50;
const END: u64 = 0x0605_4b50;
const LARGE_END: u64 = 0x0606_4b50;
const LARGE_END_LOCATOR: u64 = 0x0706_4b50;

/// Bytes of a file's header and of the end records, without fields of variable length.
const FILE_BYTES: usize = 30;
const END_BYTES: usize = 22;
const LARGE_END_BYTES: usize = 56;
const LOCATOR_BYTES: usize = 20;
/// Maximum length of the comment after the end record.
const MOST_COMMENT: usize = u16::MAX as usize;
/// Maximum size of a table: enough for half a million files.
const MOST_TABLE: u64 = 1 << 26;

/// Marks a 32-bit field whose value is in a 64-bit field elsewhere.
const ELSEWHERE: u64 = u32::MAX as u64;
/// The type of an entry's extra field with 64-bit values.
const LARGE_PART: u64 = 1;

/// A file in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub is_stored: bool,
    pub checksum: u32,
    pub len: u64,
    /// The position of its header.
    header: u64,
}

/// The files of an archive of `size` bytes, by name.
///
/// # Errors
/// When the table is missing or damaged.
pub fn read(file: &File, size: u64) -> Result<BTreeMap<String, Entry>, String> {
    let (start, len) = place(file, size)?;
    let is_inside = start.checked_add(len).is_some_and(|end| end <= size);
    if !is_inside || len > MOST_TABLE {
        return Err("the table of contents is not inside the file".to_owned());
    }
    let bytes = read_at(file, start, len as usize).map_err(|error| error.to_string())?;
    let mut rest = Fields(&bytes);
    let mut entries = BTreeMap::new();
    while !rest.0.is_empty() {
        let entry = rest.entry();
        let (name, entry) = entry.ok_or("the table of contents is damaged")?;
        entries.insert(name, entry);
    }
    Ok(entries)
}

/// The position of the first byte of a file's data.
///
/// # Errors
/// When there is no header at the position given by the table.
pub fn start(file: &File, entry: &Entry) -> Result<u64, String> {
    let header = read_at(file, entry.header, FILE_BYTES);
    let after = header
        .ok()
        .and_then(|header| Fields(&header).after_header());
    let after = after.ok_or("no header where the table of contents says")?;
    // The header is inside the file.
    Ok(entry.header + FILE_BYTES as u64 + after)
}

/// The position of the table and its length in bytes.
fn place(file: &File, size: u64) -> Result<(u64, u64), String> {
    const NO_END: &str = "the archive is truncated: it has no end record";
    let most = (END_BYTES + MOST_COMMENT + LOCATOR_BYTES) as u64;
    let len = size.min(most);
    let tail = read_at(file, size - len, len as usize).map_err(|error| error.to_string())?;
    let signature = (END as u32).to_le_bytes();
    let ends = tail.windows(signature.len());
    let mut places: Vec<usize> = ends
        .enumerate()
        .filter_map(|(at, window)| (window == signature).then_some(at))
        .collect();
    // The last end record whose comment has the stated length.
    while let Some(at) = places.pop() {
        let mut fields = Fields(&tail[at..]);
        let mut end = || {
            fields.bytes(12)?;
            let (len, start) = (fields.number(4)?, fields.number(4)?);
            let comment = fields.number(2)?;
            (fields.0.len() as u64 == comment).then_some((start, len))
        };
        let Some(place) = end() else {
            continue;
        };
        let locator = at
            .checked_sub(LOCATOR_BYTES)
            .map(|before| &tail[before..at]);
        return match locator.and_then(large_end) {
            None => Ok(place),
            Some(position) => large_place(file, position).ok_or_else(|| NO_END.to_owned()),
        };
    }
    Err(NO_END.to_owned())
}

/// The position of the 64-bit end record, if these bytes are its locator.
fn large_end(locator: &[u8]) -> Option<u64> {
    let mut fields = Fields(locator);
    (fields.number(4)? == LARGE_END_LOCATOR).then_some(())?;
    fields.bytes(4)?;
    fields.number(8)
}

/// The position of the table and its length in bytes, from the 64-bit end record.
fn large_place(file: &File, position: u64) -> Option<(u64, u64)> {
    let end = read_at(file, position, LARGE_END_BYTES).ok()?;
    let mut fields = Fields(&end);
    (fields.number(4)? == LARGE_END).then_some(())?;
    fields.bytes(36)?;
    let (len, start) = (fields.number(8)?, fields.number(8)?);
    Some((start, len))
}

/// Reads bytes at a position of a file: at most as many as a table or an end record may have.
fn read_at(mut file: &File, position: u64, len: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(position))?;
    let mut bytes = vec![0; len];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Consecutive little-endian integers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// An integer of up to eight bytes.
    fn number(&mut self, len: usize) -> Option<u64> {
        let mut number = [0; 8];
        number.get_mut(..len)?.copy_from_slice(self.bytes(len)?);
        Some(u64::from_le_bytes(number))
    }

    /// The number of bytes between a file's header and its data.
    fn after_header(&mut self) -> Option<u64> {
        (self.number(4)? == FILE).then_some(())?;
        self.bytes(22)?;
        Some(self.number(2)? + self.number(2)?)
    }

    /// An entry of the table and its name.
    fn entry(&mut self) -> Option<(String, Entry)> {
        (self.number(4)? == TABLE).then_some(())?;
        self.bytes(4)?;
        let flags = self.number(2)?;
        let method = self.number(2)?;
        self.bytes(4)?;
        let checksum = self.number(4)?;
        let mut compressed = self.number(4)?;
        let mut len = self.number(4)?;
        let [name, parts, comment] = [self.number(2)?, self.number(2)?, self.number(2)?];
        self.bytes(8)?;
        let mut header = self.number(4)?;
        let name = String::from_utf8_lossy(self.bytes(name as usize)?).into_owned();
        let mut parts = Fields(self.bytes(parts as usize)?);
        self.bytes(comment as usize)?;
        // Values that do not fit 32 bits are in the 64-bit field, in this order.
        let mut large = parts.large();
        for number in [&mut len, &mut compressed, &mut header] {
            if *number == ELSEWHERE {
                *number = large.number(8)?;
            }
        }
        let entry = Entry {
            // Neither encrypted nor compressed.
            is_stored: flags & 1 == 0 && method == 0 && compressed == len,
            checksum: checksum as u32,
            len,
            header,
        };
        Some((name, entry))
    }

    /// The extra field with 64-bit values; empty if there is none.
    fn large(&mut self) -> Fields<'a> {
        while let (Some(kind), Some(len)) = (self.number(2), self.number(2)) {
            let Some(part) = self.bytes(len as usize) else {
                break;
            };
            if kind == LARGE_PART {
                return Fields(part);
            }
        }
        Fields(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    /// An archive of these files.
    fn archive(files: &[(&str, &[u8])], comment: &str) -> Vec<u8> {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for (name, bytes) in files {
            zip.start_file(*name, stored).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.set_comment(comment).unwrap();
        zip.finish().unwrap().into_inner()
    }

    /// A file of these bytes.
    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read_bytes(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, String> {
        read(&file(bytes), bytes.len() as u64)
    }

    /// The same archive with a 64-bit end record; the 32-bit position of the table is absurd.
    fn with_large_end(archive: &[u8]) -> Vec<u8> {
        let end = archive.len() - END_BYTES;
        let [len, start] = [12, 16].map(|at| {
            let bytes = archive[end + at..end + at + 4].try_into().unwrap();
            u64::from(u32::from_le_bytes(bytes))
        });
        let mut large = archive[..end].to_vec();
        large.extend((LARGE_END as u32).to_le_bytes());
        large.extend([0; 36]);
        large.extend(len.to_le_bytes());
        large.extend(start.to_le_bytes());
        large.extend((LARGE_END_LOCATOR as u32).to_le_bytes());
        large.extend([0; 4]);
        large.extend((end as u64).to_le_bytes());
        large.extend([1, 0, 0, 0]);
        large.extend(&archive[end..end + 8]);
        large.extend([0xff; 12]);
        large.extend([0, 0]);
        large
    }

    #[test]
    fn files_are_found_with_their_bytes_and_checksums() {
        let files: [(&str, &[u8]); 3] = [
            ("m/data.pkl", b"pickle"),
            ("m/data/0", b"1234"),
            ("m/\u{e9}", b""),
        ];
        let plain = archive(&files, "");
        for bytes in [archive(&files, "a comment"), with_large_end(&plain), plain] {
            let file = file(&bytes);
            let entries = read(&file, bytes.len() as u64).unwrap();
            assert_eq!(entries.len(), 3);
            for (name, content) in files {
                let entry = entries[name];
                let start = start(&file, &entry).unwrap() as usize;
                assert_eq!(&bytes[start..start + content.len()], content, "{name}");
                let expected = (true, content.len() as u64, crc32fast::hash(content));
                assert_eq!((entry.is_stored, entry.len, entry.checksum), expected);
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        let whole = archive(&[("m/data.pkl", b"pickle"), ("m/data/0", b"1234")], "");
        for len in 0..whole.len() {
            assert!(read_bytes(&whole[..len]).is_err(), "{len}");
        }
        for bytes in [whole.clone(), with_large_end(&whole)] {
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut bytes = bytes.clone();
                    bytes[at] = value;
                    let damaged = file(&bytes);
                    // Any result but a panic.
                    let entries = read(&damaged, bytes.len() as u64).unwrap_or_default();
                    for entry in entries.values() {
                        let _ = start(&damaged, entry);
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_of_files_reserves_no_memory() {
        let mut bytes = archive(&[("m/data.pkl", b"pickle")], "");
        let end = bytes.len() - END_BYTES;
        bytes[end + 8..end + 12].fill(0xff);
        assert_eq!(read_bytes(&bytes).unwrap().len(), 1);
    }
}
