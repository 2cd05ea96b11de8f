//! The lock on a run's directory.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::TrainError;
use crate::files;

/// The file that is locked. It is empty, and stays when the run ends.
const LOCK_FILE: &str = "run.lock";

/// The right to write into the directory of a run, which one run has at a time.
///
/// It ends with the value, and with the process in any way that it ends: a killed run can be resumed at
/// once. On a file system without locks there is no protection, and no error.
///
/// [`Trainer::directory`](crate::Trainer::directory) takes the lock itself. A program that writes files of its
/// own into the directory before it trains takes the lock first, and passes it to
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
    /// Creates the directory, if it is missing, and locks it.
    ///
    /// # Errors
    /// [`TrainError::InUse`] while another run has the lock; [`TrainError::Io`] when the directory or the file
    /// in it cannot be made.
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

    /// Whether a directory has been locked before: by a run that may still be under way.
    pub fn is_in(directory: impl AsRef<Path>) -> bool {
        directory.as_ref().join(LOCK_FILE).exists()
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Checks that the locked file is still in the directory. Else the directory was removed, renamed or replaced, and
    /// a run that writes on would make another one, without the files that were there.
    ///
    /// # Errors
    /// [`TrainError::DirectoryLost`], `saved` being the update of the newest checkpoint.
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

    /// The directory that the locked file is in now, where the system knows it.
    #[cfg(unix)]
    fn renamed_to(&self) -> Option<PathBuf> {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = fs::read_link(link).ok()?;
        // The link of a file that was removed has its old path, and more.
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

/// Whether there is a file at `path`. Other systems rename no directory with an open file in it.
#[cfg(not(unix))]
fn is_file_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// A program that is started meanwhile, by another thread, has a copy of the file's handle for a moment. To close
/// ours would leave the lock to that copy.
impl Drop for RunLock {
    fn drop(&mut self) {
        // On a file system without locks there is nothing to release.
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
