//! The lock on a run's directory.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::TrainError;
use crate::files;

/// The locked file. It is empty, and remains when the run ends.
const LOCK_FILE: &str = "run.lock";

/// The exclusive right to write to the directory of a run.
///
/// It ends when the value is dropped or the process ends in any way, so that a killed run can be resumed at once.
/// On a file system without locks there is no protection, and no error.
///
/// [`Trainer::directory`](crate::Trainer::directory) acquires the lock itself. A program that writes its own files
/// to the directory before training acquires the lock first, and passes it to
/// [`Trainer::locked`](crate::Trainer::locked):
///
/// ```
/// use transformer_train::TrainError;
/// use transformer_train::run::RunLock;
///
/// # fn main() -> Result<(), TrainError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let directory = folder.path().join("model");
/// let lock = RunLock::acquire(&directory)?;
/// assert!(matches!(RunLock::acquire(&directory), Err(TrainError::InUse(_))));
/// drop(lock);
/// RunLock::acquire(&directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunLock {
    directory: PathBuf,
    file: File,
}

impl RunLock {
    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// [`TrainError::InUse`] while another run has the lock; [`TrainError::Io`] when the directory or the file in
    /// it cannot be created.
    pub fn acquire(directory: impl Into<PathBuf>) -> Result<Self, TrainError> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(TrainError::io(&directory))?;
        let path = directory.join(LOCK_FILE);
        if path.exists() {
            files::check_regular(&path).map_err(TrainError::io(&path))?;
        }
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(TrainError::io(&path))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(TrainError::InUse(directory)),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { directory, file }),
        }
    }

    /// Whether a directory has been locked before, possibly by a run that is still in progress.
    pub fn is_in(directory: impl AsRef<Path>) -> bool {
        directory.as_ref().join(LOCK_FILE).exists()
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Checks that the locked file is still in the directory. If not, the directory was removed, renamed or
    /// replaced, and continuing would create a new one without the earlier files.
    ///
    /// # Errors
    /// [`TrainError::DirectoryLost`], with `saved` as the update of the newest checkpoint.
    pub(crate) fn check(&self, saved: Option<usize>) -> Result<(), TrainError> {
        let path = self.directory.join(LOCK_FILE);
        match is_file_at(&self.file, &path) {
            true => Ok(()),
            false => Err(TrainError::DirectoryLost {
                path,
                saved,
                renamed_to: self.renamed_to(),
            }),
        }
    }

    /// The directory that contains the locked file now, if the system can tell.
    #[cfg(unix)]
    fn renamed_to(&self) -> Option<PathBuf> {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = fs::read_link(link).ok()?;
        // The link of a removed file is its old path with a suffix.
        is_file_at(&self.file, &path).then(|| path.parent().map(Path::to_owned))?
    }

    #[cfg(not(unix))]
    fn renamed_to(&self) -> Option<PathBuf> {
        None
    }
}

/// Whether the open file is the one at `path`.
#[cfg(unix)]
fn is_file_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => identity(open) == identity(there),
        _ => false,
    }
}

/// Whether there is a file at `path`. Other systems cannot rename a directory that contains an open file.
#[cfg(not(unix))]
fn is_file_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// A program that another thread starts at this moment briefly has a copy of the file handle. Closing only ours
/// would leave the lock to that copy.
impl Drop for RunLock {
    fn drop(&mut self) {
        // On a file system without locks, there is nothing to release.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_the_value_though_a_started_program_has_a_copy_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let lock = RunLock::acquire(folder.path()).unwrap();
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        RunLock::acquire(folder.path()).unwrap();
        drop(copy);
    }
}
