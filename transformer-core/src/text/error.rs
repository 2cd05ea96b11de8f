//! Errors of tokenizers and translation.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::decoding::{DecodeError, DecodeOptionsError};
use crate::formats::error::{ModelError, one_line};
use crate::formats::format::{Files, Format};
use crate::formats::hugging_face::{HuggingFace, key_of};
use crate::text::languages::listed;

/// An error of a tokenizer, or while translating text.
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
        "{}: {tokens} tokens, but the model's vocabulary has {vocab_size}",
        path.display()
    )]
    Vocabulary {
        /// The tokenizer's file.
        path: PathBuf,
        /// Number of entries in the tokenizer.
        tokens: usize,
        /// Number of entries in the model's vocabulary: in the smaller one, if the tokenizer is shared.
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
    /// The model returns no attention of its targets to their sources.
    #[error("the model returns no attention, by which a translation is aligned")]
    NoAttention,
    /// The tokenizer has no token for a language.
    #[error("no token for the language `{name}`; {}", listed(known))]
    Language {
        /// The requested language.
        name: String,
        /// The available language tokens.
        known: Vec<String>,
    },
    /// The tokenizer has language tokens for targets only.
    #[error(
        "no token for the source language `{name}`: this model has tokens for target languages only"
    )]
    SourceLanguage {
        /// The requested language.
        name: String,
    },
    /// Targets must begin with a language token, but no language was chosen.
    #[error("no target language is chosen; {}", listed(known))]
    NoTargetLanguage {
        /// The available language tokens.
        known: Vec<String>,
    },
    /// The target language is fixed by the model's configuration: its decoder starts with a language token.
    #[error(
        "the model's decoder starts with `{start}` (`decoder_start_token_id`), so targets cannot be in `{name}`"
    )]
    StartLanguage {
        /// The token of the requested language.
        name: String,
        /// The token that the decoder starts with.
        start: String,
    },
    /// The BPE dropout is not a probability.
    #[error("dropout {0} is not between 0 and 1")]
    Dropout(f64),
    /// BPE dropout requires a BPE tokenizer.
    #[error("dropout is for BPE tokenizers; this one is {model}")]
    DropoutWithoutBpe {
        /// The type of the tokenizer's model.
        model: &'static str,
    },
    /// The tokenizer failed on a sentence.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The tokenizers of an ensemble differ.
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
    /// A decoding option is out of range.
    #[error(transparent)]
    Options(#[from] DecodeOptionsError),
    /// The model does not accept a sentence; its index counts from 0.
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

    /// The error with Hugging Face's key, if the model directory is Hugging Face's.
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
