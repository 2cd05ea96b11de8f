//! Errors of text.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::decoding::{DecodeError, DecodeOptionsError};
use crate::formats::error::{ModelError, one_line};
use crate::formats::format::{Files, Format};
use crate::formats::hugging_face::{HuggingFace, key_of};
use crate::text::languages::listed;

/// Text that cannot be read, written or translated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file of a tokenizer is missing or damaged.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The tokenizer has more entries than the model has embeddings.
    #[error(
        "{}: {tokens} tokens for a model that knows {vocab_size}",
        path.display()
    )]
    Vocabulary {
        /// The tokenizer's file.
        path: PathBuf,
        /// Entries of the tokenizer.
        tokens: usize,
        /// Entries of the model's smaller vocabulary.
        vocab_size: usize,
    },
    /// The tokenizer and the model have different ids for a special token.
    #[error("{}: `{name}` is token {found}, but the model's `{key}` is {expected}", path.display())]
    SpecialToken {
        /// The tokenizer's file.
        path: PathBuf,
        /// The special token's name.
        name: &'static str,
        /// The tokenizer's id for it.
        found: u32,
        /// The key of the model's configuration.
        key: &'static str,
        /// The model's id for it.
        expected: u32,
    },
    /// The tokenizer has no token for a language.
    #[error("no token for the language `{name}`; {}", listed(known))]
    Language {
        /// The language asked for.
        name: String,
        /// The tokens for languages that there are.
        known: Vec<String>,
    },
    /// The tokenizer has tokens for the languages of targets only.
    #[error(
        "the source's language `{name}` has no token: this model has tokens for the target's only"
    )]
    SourceLanguage {
        /// The language asked for.
        name: String,
    },
    /// Targets must begin with the token of their language, which was not chosen.
    #[error("the target's language is not chosen; {}", listed(known))]
    NoTargetLanguage {
        /// The tokens for languages that there are.
        known: Vec<String>,
    },
    /// The target's language is the token that the model's decoder starts with, which is part of its configuration.
    #[error(
        "the model's decoder starts with `{start}` (`decoder_start_token_id`), so that targets cannot be in `{name}`"
    )]
    StartLanguage {
        /// The token of the language asked for.
        name: String,
        /// The token that the decoder starts with.
        start: String,
    },
    /// The dropout of merges is not a probability.
    #[error("dropout {0} is not between 0 and 1")]
    Dropout(f64),
    /// Only the merges of a BPE can be dropped.
    #[error("dropout is for BPE tokenizers; this one is {model}")]
    DropoutWithoutBpe {
        /// The type of the tokenizer's model.
        model: &'static str,
    },
    /// The tokenizer failed on a sentence.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The tokenizers of an ensemble are not the same.
    #[error("{}: not the tokenizer of {}", path.display(), first.display())]
    OtherTokenizer {
        /// The model directory with another tokenizer.
        path: PathBuf,
        /// The first model's directory.
        first: PathBuf,
    },
    /// The model directory is damaged.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The options are out of range.
    #[error(transparent)]
    Options(#[from] DecodeOptionsError),
    /// The model does not accept a sentence; the index counts those given, from 0.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl TextError {
    /// A problem with a file.
    pub(super) fn file<P: Display>(path: impl Into<PathBuf>) -> impl FnOnce(P) -> Self {
        let path = path.into();
        move |problem| Self::File {
            path,
            problem: one_line(problem),
        }
    }

    /// The error with the key that a file of Hugging Face's has, if the model's directory is one of theirs.
    pub(super) fn in_keys_of(self, directory: &Path) -> Self {
        match self {
            Self::SpecialToken {
                path,
                name,
                found,
                key,
                expected,
            } if Files::of(directory).is_ok_and(|files| HuggingFace.recognizes(&files)) => {
                Self::SpecialToken {
                    path,
                    name,
                    found,
                    key: key_of(key),
                    expected,
                }
            }
            error => error,
        }
    }
}
