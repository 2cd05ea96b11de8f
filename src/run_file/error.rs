//! Errors of run files.

use std::io;
use std::path::PathBuf;

/// The last line of `run.toml`. A file that was cut off lacks the end of this line.
pub(super) const LAST_LINE: &str =
    "# This is the last line: where it is missing, the file was cut off, and --resume refuses it.";

/// An error in a run file, a flag or a `--set`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFileError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{}: line {line}: {problem}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's error.
        problem: String,
    },
    /// The `run.toml` of a run has lost its last line, and perhaps keys before it.
    #[error(
        "{}: is cut off, so that keys would get their defaults; complete the file, and end it with the line `{}`",
        path.display(),
        LAST_LINE
    )]
    CutOff {
        /// The file.
        path: PathBuf,
    },
    /// The key does not exist.
    #[error("{place}: unknown key `{key}`; {advice}")]
    UnknownKey {
        /// The file and line, or the argument.
        place: String,
        /// The key.
        key: String,
        /// The key that was probably meant, or the existing keys.
        advice: String,
    },
    /// The section does not exist.
    #[error("{place}: unknown section `[{section}]`; {advice}")]
    UnknownSection {
        /// The file and line.
        place: String,
        /// The section.
        section: String,
        /// The section that was probably meant, or the existing sections.
        advice: String,
    },
    /// A `--set` without a key and a value.
    #[error("--set {text}: must be KEY=VALUE, such as training.updates=1000")]
    Setting {
        /// The argument.
        text: String,
    },
    /// A value that a key cannot have.
    #[error("{subject}: {rule}")]
    Value {
        /// The key and its value, with the place that set it.
        subject: String,
        /// The rule for the value.
        rule: String,
    },
}
