//! A file to which a log is written.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

use crate::error::TrainError;

/// An open file, its path, and the records that did not fit on the disk.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Length of the file in bytes, all of complete records.
    end: u64,
    waiting: Vec<u8>,
}

impl LogFile {
    /// The open file at `path`, in which the log continues after `end` bytes.
    pub fn new(path: PathBuf, file: File, end: u64) -> Self {
        Self {
            path,
            file,
            end,
            waiting: Vec::new(),
        }
    }

    /// Appends a record. While the disk is full, the record waits for the next one.
    ///
    /// # Errors
    /// When it cannot be written for another reason, or when there is no longer a file at the path: records in the
    /// open one would be lost.
    pub fn write(&mut self, record: &[u8]) -> Result<(), TrainError> {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        self.waiting.extend_from_slice(record);
        match self.append_waiting() {
            Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => Ok(()),
            result => result.map_err(TrainError::io(&self.path)),
        }
    }

    /// Writes the pending records.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_waiting(&mut self) -> Result<(), TrainError> {
        self.append_waiting().map_err(TrainError::io(&self.path))
    }

    fn append_waiting(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        fs::metadata(&self.path)?;
        let begun = self.file.seek(SeekFrom::Start(self.end));
        if let Err(error) = begun.and_then(|_| self.file.write_all(&self.waiting)) {
            // Removes an incomplete record. If that fails, the next attempt overwrites it.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// `/dev/full` is a disk that is full.
    #[test]
    fn records_wait_while_the_disk_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let read = || fs::read_to_string(&path).unwrap();
        let mut log = LogFile::new(path.clone(), File::create(&path).unwrap(), 0);
        log.write(b"one\n").unwrap();

        let full = File::options().write(true).open("/dev/full").unwrap();
        let on_disk = std::mem::replace(&mut log.file, full);
        log.write(b"two\n").unwrap();
        log.write(b"three\n").unwrap();
        let error = log.write_waiting().unwrap_err().to_string();
        let start = format!("{}: ", path.display());
        assert!(error.starts_with(&start), "{error}");
        assert_eq!(read(), "one\n");

        log.file = on_disk;
        log.write(b"four\n").unwrap();
        assert_eq!(read(), "one\ntwo\nthree\nfour\n");
        log.write_waiting().unwrap();
        assert_eq!(read(), "one\ntwo\nthree\nfour\n");
    }
}
