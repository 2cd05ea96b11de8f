//! Files of a run, opened only if they are regular files: opening a pipe blocks until someone writes, and a device
//! may be endless.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Checks that `path` is a regular file: not a pipe, and not a device such as `/dev/full`.
///
/// # Errors
/// When it is not a regular file, is a dangling link, or does not exist. The error kind is
/// [`NotFound`](io::ErrorKind::NotFound) only in the last case.
pub(crate) fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(io::Error::other("not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            Err(io::Error::other("a link to a file that is not there"))
        }
        Err(error) => Err(error),
    }
}

/// Opens a file for reading.
///
/// # Errors
/// When it is [not regular](check_regular), or cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    check_regular(path)?;
    File::open(path)
}

/// The bytes of a file.
///
/// # Errors
/// When it cannot be [opened](open) or read.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    check_regular(path)?;
    fs::read(path)
}
