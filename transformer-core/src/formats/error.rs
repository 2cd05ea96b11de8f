//! File errors. Each names the file, and the key or tensor.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use crate::decoding::DecodeOptionsError;
use crate::nn::error::ConfigError;

/// An error while reading or writing a model directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file could not be opened, read, written or renamed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A JSON file is damaged, or `config.json` is not a configuration.
    #[error("{}: {}", path.display(), one_line(source))]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's error, with line and column.
        source: serde_json::Error,
    },
    /// `config.json` has a newer format version.
    #[error("{}: format {found}; this version reads formats up to {supported}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The file's format version.
        found: u64,
        /// The newest supported format version.
        supported: u64,
    },
    /// `config.json` describes another type of model.
    #[error("{}: describes a model of type `{}`, not `{expected}`", path.display(), one_line(found))]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The type of model that it describes.
        found: String,
        /// The requested type of model.
        expected: String,
    },
    /// The configuration in `config.json` is invalid.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The problem.
        source: ConfigError,
    },
    /// The weights do not match the configuration, or the file is damaged.
    #[error("{}: {}", path.display(), one_line(problem))]
    Weights {
        /// The file.
        path: PathBuf,
        /// Up to eight tensors that are missing, unknown, or of the wrong type or shape; or why the file cannot be
        /// read.
        problem: String,
    },
    /// A key of a Hugging Face file has an unsupported value, or a model or decoding option cannot be expressed in
    /// these files.
    #[error("{}: `{key}` is {value}, {problem}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The problem.
        problem: String,
    },
    /// Hugging Face's `config.json` is invalid or contradicts another file.
    #[error("{}: {problem}", path.display())]
    HuggingFaceConfig {
        /// The file.
        path: PathBuf,
        /// The problem, in terms of the file's keys.
        problem: String,
    },
    /// A decoding option in a model directory is out of range.
    #[error("{}: {}", path.display(), with_file_keys(source))]
    Options {
        /// The file.
        path: PathBuf,
        /// The option's error.
        source: DecodeOptionsError,
    },
}

impl ModelError {
    /// An I/O error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// The error for parameters that the format of a file has no names for.
    pub(crate) fn unnamed(path: &Path) -> impl FnOnce(Vec<String>) -> Self {
        let path = path.to_owned();
        move |parameters| Self::Weights {
            path,
            problem: format!("no names for `{}`", parameters.join("`, `")),
        }
    }

    /// The error for a tensor that cannot be read.
    pub(crate) fn tensor(path: &Path, problem: &TensorProblem) -> Self {
        Self::Weights {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// The error for a file whose tensors do not match the model.
    pub(crate) fn tensors(path: &Path, problems: Vec<TensorProblem>) -> Self {
        Self::Weights {
            path: path.to_owned(),
            problem: not_of_model(&problems),
        }
    }
}

/// Describes tensors that do not match the model.
pub(crate) fn not_of_model(problems: &[impl fmt::Display]) -> String {
    let more = problems.len().saturating_sub(MOST_LISTED);
    let listed = problems.iter().take(MOST_LISTED);
    let mut listed: Vec<String> = listed.map(ToString::to_string).collect();
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    format!("not the weights of this model: {}", listed.join("; "))
}

/// Maximum number of problems that an error of a model directory lists.
const MOST_LISTED: usize = 8;

/// An error while reading or writing a PyTorch state dict.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PytorchError {
    /// The file could not be opened, read, written or renamed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The model's configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration has parameters that the system's classes lack.
    #[error("{system} has no names for `{}`", parameters.join("`, `"))]
    Unnamed {
        /// The system.
        system: &'static str,
        /// Paths of the parameters without a name in the system.
        parameters: Vec<String>,
    },
    /// The file is damaged or not a state dict.
    #[error("{}: not a state dict: {}", path.display(), one_line(problem))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The tensors do not match the configuration.
    #[error("{}: the state dict does not match the configuration: {}", path.display(), listed(problems))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// All problems, by name.
        problems: Vec<TensorProblem>,
    },
    /// The file extension is not supported.
    #[error("{}: unsupported extension; use .pt, .pth or .safetensors", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
}

impl PytorchError {
    /// An I/O error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// The message, with option names replaced by the keys of `generation_config.json`.
fn with_file_keys(problem: &DecodeOptionsError) -> String {
    let keys = [
        ("`beam`", "`num_beams`"),
        ("`banned_tokens`", "`bad_words_ids` or `suppress_tokens`"),
        ("`forced_first`", "`forced_bos_token_id`"),
        ("`min_length`", "`min_length` or `min_new_tokens`"),
    ];
    let replaced = |text: String, (ours, key): (&str, &str)| text.replace(ours, key);
    keys.into_iter().fold(problem.to_string(), replaced)
}

/// Maximum characters of a message about a file, and how many are kept at the end of a longer one: parsers name the
/// line there.
const MOST: usize = 10_000;
const END: usize = 100;

/// The same for a single word, such as a token or a name from the file.
const MOST_OF_WORD: usize = 100;
const END_OF_WORD: usize = 20;

/// A problem with a file as one line. It may quote the file, so the middle of long words and long texts is elided.
pub(crate) fn one_line(problem: impl Display) -> String {
    let mut text = String::new();
    for (index, word) in problem.to_string().split(' ').enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&without_middle(word, MOST_OF_WORD, END_OF_WORD));
    }
    let text = without_middle(&text, MOST, END);
    match text.contains(char::is_control) {
        true => text.escape_debug().to_string(),
        false => text.into_owned(),
    }
}

/// The text, or its first `most` and last `end` characters if it is longer than `most`.
fn without_middle(text: &str, most: usize, end: usize) -> Cow<'_, str> {
    let Some((beginning, _)) = text.char_indices().nth(most) else {
        return Cow::Borrowed(text);
    };
    let end = text.char_indices().nth_back(end - 1);
    let end = end.map_or(beginning, |(end, _)| end.max(beginning));
    Cow::Owned(format!("{}…{}", &text[..beginning], &text[end..]))
}

fn listed(problems: &[TensorProblem]) -> String {
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}

/// A problem with a tensor of a state dict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum TensorProblem {
    /// The configuration has the tensor; the state dict does not.
    #[error("`{name}` is missing")]
    Missing {
        /// The tensor's name.
        name: String,
    },
    /// The state dict has the tensor; the configuration does not.
    #[error("`{name}` is unknown")]
    Unknown {
        /// The tensor's name.
        name: String,
    },
    /// The shapes differ.
    #[error("`{name}` is {found:?}, not {expected:?}")]
    Shape {
        /// The tensor's name.
        name: String,
        /// Its shape in the state dict.
        found: Vec<usize>,
        /// Its shape in the configuration.
        expected: Vec<usize>,
    },
    /// The elements are in neither single nor half precision.
    #[error("`{name}` is {found}, not f32, f16 or bf16")]
    Type {
        /// The tensor's name.
        name: String,
        /// The type of its elements.
        found: String,
    },
    /// The element type is not the one that the directory's format requires.
    #[error("`{name}` is {found}, not {expected}")]
    OtherType {
        /// The tensor's name.
        name: String,
        /// The type of its elements.
        found: String,
        /// The type that the format requires.
        expected: String,
    },
    /// The tensor holds a value that is not allowed there.
    #[error("`{name}` holds {found}; {rule}")]
    Number {
        /// The tensor's name.
        name: String,
        /// The value.
        found: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The entry is not a tensor.
    #[error("`{name}` is not a tensor")]
    NotATensor {
        /// The name.
        name: String,
    },
    /// The tensor differs from the one that the configuration ties it to.
    #[error("`{name}` differs from `{other}`, which it is tied to")]
    NotTied {
        /// The tensor's name.
        name: String,
        /// The other tensor's name.
        other: String,
    },
    /// The tensor should be the table of sines and cosines (§3.5).
    #[error("`{name}` is not the table of sines and cosines")]
    NotPositions {
        /// The tensor's name.
        name: String,
    },
    /// The values cannot be read.
    #[error("`{name}` cannot be read: {problem}")]
    Unreadable {
        /// The tensor's name.
        name: String,
        /// The problem.
        problem: String,
    },
}

impl TensorProblem {
    pub(crate) fn unreadable(name: &str, error: &std::io::Error) -> Self {
        Self::Unreadable {
            name: name.to_owned(),
            problem: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_of_its_beginning_and_its_end() {
        assert_eq!(one_line("`ä` is unknown"), "`ä` is unknown");
        assert_eq!(one_line("`a\nb`"), "`a\\nb`");
        let token = "ä".repeat(1 << 20);
        let (begin, end) = ("ä".repeat(MOST_OF_WORD - 1), "ä".repeat(END_OF_WORD - 1));
        assert_eq!(
            one_line(format!("`{token}` is unknown")),
            format!("`{begin}…{end}` is unknown")
        );
        let long = format!("begins {}ends", "ä ".repeat(1 << 20));
        let line = one_line(&long);
        assert_eq!(line.chars().count(), MOST + 1 + END);
        assert!(line.starts_with("begins ä ä") && line.ends_with("ä ends"));
        // A text slightly over the limit repeats nothing.
        let long = "a ".repeat(MOST / 2 + 1);
        assert_eq!(
            one_line(&long),
            format!("{}…{}", &long[..MOST], &long[MOST..])
        );
    }
}
