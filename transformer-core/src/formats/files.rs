//! Atomic replacement of files, by writing a temporary file in the same folder and renaming it; reading of files with a
//! size limit.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use safetensors::SafeTensorError;

/// Maximum size in bytes of a file that is read whole, such as a configuration or a vocabulary.
const MOST_BYTES: u64 = 256 << 20;

/// The beginning of a Git LFS pointer, the placeholder for a large file that was not fetched.
const POINTER: &[u8] = b"version https://git-lfs.github.com/";

/// Whether there is a file of this name, or a link, even a dangling one.
pub(crate) fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Opens a file for reading.
///
/// # Errors
/// When it is missing (the only error of kind [`NotFound`](io::ErrorKind::NotFound)), a dangling link, a Git LFS
/// pointer, or a pipe or device: these may be endless, and opening a pipe waits for a writer.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_there(path) => {
            return Err(io::Error::other("a link to a file that is not there"));
        }
        Err(error) => return Err(error),
    };
    if kind.is_dir() {
        return File::open(path);
    }
    if !kind.is_file() {
        return Err(io::Error::other("a pipe or a device, not a file"));
    }
    let mut file = File::open(path)?;
    let mut first = Vec::new();
    (&mut file)
        .take(POINTER.len() as u64)
        .read_to_end(&mut first)?;
    if first == POINTER {
        let problem = "a Git LFS pointer, not the file: `git lfs pull` fetches it";
        return Err(io::Error::other(problem));
    }
    file.rewind()?;
    Ok(file)
}

/// Reads the bytes of a file.
///
/// # Errors
/// When it cannot be [opened](open) or read, or is larger than 256 MiB.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata()?.len();
    if size > MOST_BYTES {
        let problem = format!("{size} bytes, more than the limit of {MOST_BYTES} for such a file");
        return Err(io::Error::other(problem));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the text of a file.
///
/// # Errors
/// As [`read`], and when it is not UTF-8 or begins with a byte order mark, which JSON does not allow.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path)?).map_err(|_| io::Error::other("not UTF-8"))?;
    match text.starts_with('\u{feff}') {
        true => Err(io::Error::other(
            "begins with a byte order mark, which JSON does not allow",
        )),
        false => Ok(text),
    }
}

/// Numbers that Python writes although JSON lacks them.
const PYTHON_NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Reads a JSON file, with Python's non-standard numbers as strings, such as `"NaN"`.
///
/// # Errors
/// As [`read_text`].
pub(crate) fn read_json(path: &Path) -> io::Result<String> {
    let json = read_text(path)?;
    let mut numbers = PYTHON_NUMBERS.iter();
    Ok(match numbers.any(|number| json.contains(*number)) {
        true => with_numbers_as_texts(&json),
        false => json,
    })
}

fn with_numbers_as_texts(json: &str) -> String {
    let mut result = String::with_capacity(json.len());
    let (mut is_text, mut is_escaped) = (false, false);
    let mut rest = json;
    while let Some(next) = rest.chars().next() {
        let mut numbers = PYTHON_NUMBERS.into_iter();
        let number = numbers.find(|number| !is_text && rest.starts_with(*number));
        if let Some(number) = number {
            result += &format!("\"{number}\"");
            rest = &rest[number.len()..];
            continue;
        }
        if next == '"' && !is_escaped {
            is_text = !is_text;
        }
        is_escaped = is_text && next == '\\' && !is_escaped;
        result.push(next);
        rest = &rest[next.len_utf8()..];
    }
    result
}

/// Replaces the file at `path` atomically: `write` creates the new file at the path that it is given.
///
/// That path is in the same folder. The new file is flushed to disk before it replaces the old one, and the folder
/// afterwards. On any error, the old file is unchanged and the new one is removed.
///
/// # Errors
/// The error of `write`, or of flushing or renaming the file.
pub fn replace_file<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let side = side_path(path);
    let result = write(&side).and_then(|()| Ok(publish(&side, path)?));
    if result.is_err() {
        // The first error is the one to report; a leftover file does no harm.
        let _ = fs::remove_file(&side);
    }
    result
}

/// [`replace_file`] with these bytes.
///
/// # Errors
/// When the file cannot be written.
pub fn replace_file_with(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    replace_file(path, |side| fs::write(side, bytes))
}

/// Renames a file or directory and flushes the new name's folder to disk: later changes, such as the removal of an
/// older file, reach the disk after the new name, even on power loss.
///
/// # Errors
/// When it cannot be renamed. Failure to flush the folder, as on some file systems, is not an error: it then has the
/// old name or the new one.
pub fn rename_and_sync(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let to = to.as_ref();
    fs::rename(from, to)?;
    // Other systems do not open a folder as a file.
    if cfg!(unix) {
        let _ = File::open(folder_of(to)).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

/// The I/O error that kept safetensors from writing a file, or else its own error.
pub(crate) fn system_error(error: SafeTensorError) -> io::Error {
    match error {
        SafeTensorError::IoError(error) => error,
        error => io::Error::other(error),
    }
}

/// Removes the temporary files that [`replace_file`] left beside `path` in killed processes.
///
/// No other process may replace the file meanwhile.
///
/// # Errors
/// When the folder cannot be read or a file in it cannot be removed; the error names it.
pub fn remove_unfinished_files(path: &Path) -> io::Result<()> {
    let folder = folder_of(path);
    for entry in fs::read_dir(folder).map_err(named(folder))? {
        let entry = entry.map_err(named(folder))?;
        if is_side_of(&entry.file_name(), path) {
            let side = entry.path();
            fs::remove_file(&side).map_err(named(&side))?;
        }
    }
    Ok(())
}

/// Adds the path to an error.
fn named(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Whether a file name is one that [`side_path`] gives, in any process.
fn is_side_of(name: &OsStr, path: &Path) -> bool {
    let process = || {
        let own = path.file_name()?.to_str()?;
        let rest = name.to_str()?.strip_prefix(own)?;
        rest.strip_prefix('.')?.strip_suffix(".tmp")
    };
    process().is_some_and(|process| {
        !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn side_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn publish(side: &Path, path: &Path) -> io::Result<()> {
    File::open(side)?.sync_all()?;
    rename_and_sync(side, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_and_links_to_nothing_are_not_missing_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid").unwrap();
        assert_eq!(
            read(&path).unwrap_err().to_string(),
            "a Git LFS pointer, not the file: `git lfs pull` fetches it"
        );
        #[cfg(unix)]
        {
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(directory.path().join("missing"), &path).unwrap();
            let error = read(&path).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::NotFound);
            assert_eq!(error.to_string(), "a link to a file that is not there");
        }
    }

    #[test]
    fn numbers_of_python_s_are_texts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (json, expected) in [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            (
                r#"{"a": NaN, "b": [Infinity, -Infinity]}"#,
                r#"{"a": "NaN", "b": ["Infinity", "-Infinity"]}"#,
            ),
            (
                r#"{"NaN": "a \" NaN \\", "é": NaN}"#,
                r#"{"NaN": "a \" NaN \\", "é": "NaN"}"#,
            ),
        ] {
            fs::write(&path, json).unwrap();
            assert_eq!(read_json(&path).unwrap(), expected);
        }
        fs::write(&path, "\u{feff}{}").unwrap();
        assert_eq!(
            read_json(&path).unwrap_err().to_string(),
            "begins with a byte order mark, which JSON does not allow"
        );
    }

    #[test]
    fn files_without_an_end_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text");
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(MOST_BYTES + 1))
            .unwrap();
        assert_eq!(
            read(&path).unwrap_err().to_string(),
            "268435457 bytes, more than the limit of 268435456 for such a file"
        );
        read(directory.path()).unwrap_err();
        let missing = read(&directory.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        if cfg!(unix) {
            let error = read(Path::new("/dev/zero")).unwrap_err();
            assert_eq!(error.to_string(), "a pipe or a device, not a file");
        }
    }

    /// The files of a directory, with their content.
    fn listed(directory: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap_or_default())
            })
            .collect();
        files.sort();
        files
    }

    fn pair(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn a_new_file_replaces_the_old() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace_file_with(&path, "old").unwrap();
        replace_file_with(&path, "new").unwrap();
        assert_eq!(listed(directory.path()), [pair("file", "new")]);
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace_file_with(&path, "old").unwrap();
        replace_file(&path, |side| {
            assert_eq!(side.parent(), path.parent());
            fs::write(side, "new")?;
            assert_eq!(fs::read_to_string(&path)?, "old");
            Ok::<_, io::Error>(())
        })
        .unwrap();
        assert_eq!(listed(directory.path()), [pair("file", "new")]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace_file_with(&path, "old").unwrap();
        let error = replace_file(&path, |side| {
            fs::write(side, "half of the n")?;
            Err::<(), _>(io::Error::other("disk full"))
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "disk full");
        assert_eq!(listed(directory.path()), [pair("file", "old")]);
    }

    #[test]
    fn a_failed_rename_leaves_nothing_either() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::create_dir(&path).unwrap();
        replace_file_with(&path, "new").unwrap_err();
        assert_eq!(listed(directory.path()), [pair("file", "")]);
    }

    #[test]
    fn files_of_killed_writes_are_removed_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace_file_with(&path, "whole").unwrap();
        fs::write(side_path(&path), "ours").unwrap();
        fs::write(directory.path().join("file.7.tmp"), "another's").unwrap();
        let others = [
            "file.7",
            "file.7.tmp.txt",
            "file.tmp",
            "file.x.tmp",
            "other.7.tmp",
        ];
        for name in others {
            fs::write(directory.path().join(name), "").unwrap();
        }
        remove_unfinished_files(&path).unwrap();
        let mut expected = vec![pair("file", "whole")];
        expected.extend(others.map(|name| pair(name, "")));
        expected.sort();
        assert_eq!(listed(directory.path()), expected);
    }

    #[test]
    fn what_cannot_be_removed_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let left = directory.path().join("file.7.tmp");
        fs::create_dir(&left).unwrap();
        let error = remove_unfinished_files(&path).unwrap_err().to_string();
        let start = format!("{}: ", left.display());
        assert!(error.starts_with(&start), "{error}");
    }

    #[test]
    fn a_write_that_writes_nothing_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace_file(&path, |_| Ok::<_, io::Error>(())).unwrap_err();
        assert_eq!(listed(directory.path()), []);
    }
}
