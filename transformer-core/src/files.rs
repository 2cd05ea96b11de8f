//! Files that are whole or not there: written beside their place, then renamed into it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Replaces the file at `path` by what `write` puts into the path it is given.
///
/// `write` gets a path in the same folder. What it wrote reaches the disk before it takes the place
/// of the old file; when anything fails the old file stays as it was and the new one is removed.
///
/// # Errors
/// What `write` returns, or why the file could not be flushed or renamed.
pub fn replace_file<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let side = side_path(path);
    let result = write(&side).and_then(|()| Ok(publish(&side, path)?));
    if result.is_err() {
        // The error that matters is the first one; a leftover beside it harms nothing.
        let _ = fs::remove_file(&side);
    }
    result
}

/// [`replace_file`] with the given bytes.
///
/// # Errors
/// Why the file could not be written.
pub fn replace_file_with(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    replace_file(path, |side| fs::write(side, bytes))
}

fn side_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn publish(side: &Path, path: &Path) -> io::Result<()> {
    File::open(side)?.sync_all()?;
    fs::rename(side, path)
}
