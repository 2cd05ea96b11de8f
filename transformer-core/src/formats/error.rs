//! Errors of files, which name the file, the key or the tensor.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use crate::decoding::DecodeOptionsError;
use crate::nn::error::ConfigError;

/// A model directory that cannot be written or read.
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
    /// A file in JSON is damaged, or `config.json` is not a configuration.
    #[error("{}: {}", path.display(), one_line(source))]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's error, with line and column.
        source: serde_json::Error,
    },
    /// `config.json` is in a format of a later version.
    #[error("{}: format {found}; this version reads formats up to {supported}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format that can be read.
        supported: u64,
    },
    /// `config.json` describes another type of model.
    #[error("{}: describes a model of type `{}`, not `{expected}`", path.display(), one_line(found))]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The type of model that it describes.
        found: String,
        /// The type of model asked for.
        expected: String,
    },
    /// `config.json` contradicts itself.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        source: ConfigError,
    },
    /// The weights do not belong to the configuration, or the file is damaged.
    #[error("{}: {}", path.display(), one_line(problem))]
    Weights {
        /// The file.
        path: PathBuf,
        /// The tensors that are missing, unknown, or of another type or shape, up to eight; or why the file cannot be
        /// read.
        problem: String,
    },
    /// A key of one of Hugging Face's files has a value that this version does not implement; or a model, or options
    /// of decoding, have a setting for which these files have no key.
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
    /// Hugging Face's `config.json` contradicts itself or another file.
    #[error("{}: {problem}", path.display())]
    HuggingFaceConfig {
        /// The file.
        path: PathBuf,
        /// The contradiction, with the file's keys.
        problem: String,
    },
    /// The options of decoding in a model directory are out of range.
    #[error("{}: {}", path.display(), with_file_keys(source))]
    Options {
        /// The file.
        path: PathBuf,
        /// The option.
        source: DecodeOptionsError,
    },
}

impl ModelError {
    /// An input or output error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// The error of a file with a tensor that cannot be read.
    pub(crate) fn tensor(path: &Path, problem: &TensorProblem) -> Self {
        Self::Weights {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// The error of a file whose tensors are not those of the model.
    pub(crate) fn tensors(path: &Path, problems: Vec<TensorProblem>) -> Self {
        Self::Weights {
            path: path.to_owned(),
            problem: not_of_model(&problems),
        }
    }
}

/// The problem of a file whose tensors are not those of the model.
pub(crate) fn not_of_model(problems: &[impl fmt::Display]) -> String {
    let more = problems.len().saturating_sub(MOST_LISTED);
    let listed = problems.iter().take(MOST_LISTED);
    let mut listed: Vec<String> = listed.map(ToString::to_string).collect();
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    format!("not the weights of this model: {}", listed.join("; "))
}

/// The most problems that an error of a model directory lists.
const MOST_LISTED: usize = 8;

/// A PyTorch state dict that cannot be read or written.
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
    /// The model's configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system's classes lack parameters that the configuration has.
    #[error("{system} has no names for `{}`", parameters.join("`, `"))]
    Unnamed {
        /// The system.
        system: &'static str,
        /// Paths of the parameters without a name.
        parameters: Vec<String>,
    },
    /// The file is damaged, or is no state dict.
    #[error("{}: not a state dict: {}", path.display(), one_line(problem))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The tensors are not those of the configuration.
    #[error("{}: not the state dict of its configuration: {}", path.display(), listed(problems))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// All problems, by name.
        problems: Vec<TensorProblem>,
    },
    /// The extension is not that of a state dict's format.
    #[error("{}: write a .pt, .pth or .safetensors file", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
}

impl PytorchError {
    /// An input or output error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// A problem with options in the keys of `generation_config.json`.
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

/// Most characters of a problem with a file, and how many of a longer one's end are kept: parsers name the line
/// there.
const MOST: usize = 10_000;
const END: usize = 100;

/// The same for a word of it, such as a token or a name in the file.
const MOST_OF_WORD: usize = 100;
const END_OF_WORD: usize = 20;

/// A problem with a file in one line. It may quote the file: long words lose their middle, and so does a long text.
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

/// A text; if it is longer than `most` characters, its first `most` and its last `end`.
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
    /// The configuration has it, the state dict does not.
    #[error("`{name}` is missing")]
    Missing {
        /// The tensor's name.
        name: String,
    },
    /// The state dict has it, the configuration does not.
    #[error("`{name}` is unknown")]
    Unknown {
        /// The tensor's name.
        name: String,
    },
    /// It is of another shape.
    #[error("`{name}` is {found:?}, not {expected:?}")]
    Shape {
        /// The tensor's name.
        name: String,
        /// Its shape in the state dict.
        found: Vec<usize>,
        /// The configuration's shape.
        expected: Vec<usize>,
    },
    /// Its numbers are neither in single nor in half precision.
    #[error("`{name}` is {found}, not f32, f16 or bf16")]
    Type {
        /// The tensor's name.
        name: String,
        /// The type of its elements.
        found: String,
    },
    /// Its numbers are not of the type that the directory's format has.
    #[error("`{name}` is {found}, not {expected}")]
    OtherType {
        /// The tensor's name.
        name: String,
        /// The type of its elements.
        found: String,
        /// That of the format.
        expected: String,
    },
    /// It holds a number that quantization does not make, or cannot keep.
    #[error("`{name}` holds {found}; {rule}")]
    Number {
        /// The tensor's name.
        name: String,
        /// The number.
        found: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// It is no tensor at all.
    #[error("`{name}` is not a tensor")]
    NotATensor {
        /// The name.
        name: String,
    },
    /// It differs from the tensor that the configuration ties it to.
    #[error("`{name}` differs from `{other}`, which it is tied to")]
    NotTied {
        /// The tensor's name.
        name: String,
        /// The other one's name.
        other: String,
    },
    /// It should be the table of sines and cosines (§3.5).
    #[error("`{name}` is not the table of sines and cosines")]
    NotPositions {
        /// The tensor's name.
        name: String,
    },
    /// Its numbers cannot be read.
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
        // No part of a text that is a little too long is there twice.
        let long = "a ".repeat(MOST / 2 + 1);
        assert_eq!(
            one_line(&long),
            format!("{}…{}", &long[..MOST], &long[MOST..])
        );
    }
}
