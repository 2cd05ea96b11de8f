//! A file that a log writes into.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::TrainError;

/// An open file, and its path.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// A file that is open at `path`.
    pub fn new(path: PathBuf, file: File) -> Self {
        Self { path, file }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When they cannot be written, or there is no file at the path any more: they would be lost with the open one.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TrainError> {
        fs::metadata(&self.path)
            .and_then(|_| self.file.write_all(bytes))
            .map_err(TrainError::io(&self.path))
    }
}

/// Checks that there is a file at `path` that has an end: no pipe, and no device such as `/dev/full`.
///
/// # Errors
/// When it is of another kind, or there is nothing.
pub(super) fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("not a regular file")),
    }
}
