//! Reads at arbitrary positions of a file, by several threads at once.

use std::fs::File;
use std::io;
#[cfg(not(unix))]
use std::io::{Read, Seek, SeekFrom};
#[cfg(unix)]
use std::os::unix::fs::FileExt;
#[cfg(not(unix))]
use std::sync::{Mutex, PoisonError};

/// A file that is read at arbitrary positions.
pub(super) struct PositionalFile {
    #[cfg(unix)]
    file: File,
    /// One cursor for all threads.
    #[cfg(not(unix))]
    file: Mutex<File>,
}

impl PositionalFile {
    pub fn new(file: File) -> Self {
        #[cfg(not(unix))]
        let file = Mutex::new(file);
        Self { file }
    }

    /// Fills `bytes` from the file, starting at `position`.
    #[cfg(unix)]
    pub fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, position)
    }

    /// Fills `bytes` from the file, starting at `position`.
    #[cfg(not(unix))]
    pub fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(position))?;
        file.read_exact(bytes)
    }
}
