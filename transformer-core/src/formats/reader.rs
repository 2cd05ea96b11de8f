//! Reads binary files in order.

use std::fs::File;
use std::io::{BufReader, Read};

/// Reads a file from its beginning to its end.
pub(crate) struct Reader<'a> {
    input: BufReader<&'a File>,
    /// Number of bytes read.
    pub at: u64,
}

impl<'a> Reader<'a> {
    pub fn of(file: &'a File) -> Self {
        Self {
            input: BufReader::new(file),
            at: 0,
        }
    }

    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        let read = self.input.read_exact(bytes);
        read.map_err(|_| "the file ends too early".to_owned())?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    pub fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// Skips bytes, which are in the file.
    pub fn skip(&mut self, bytes: u64) -> Result<(), String> {
        let relative = i64::try_from(bytes).map_err(|error| error.to_string())?;
        let skipped = self.input.seek_relative(relative);
        skipped.map_err(|error| error.to_string())?;
        self.at += bytes;
        Ok(())
    }
}
