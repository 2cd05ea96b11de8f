//! Files of a run, which are opened only where they are files: a pipe is not even opened before someone writes, and a
//! device may have no end.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Checks that there is a file at `path` that has an end: no pipe, and no device such as `/dev/full`.
///
/// # Errors
/// When it is of another kind, or a link to nothing, or there is nothing: only then the kind of the error is
/// [`NotFound`](io::ErrorKind::NotFound).
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

/// Opens a file to read it.
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
