//! Why training could not start, or had to end.

use std::path::PathBuf;

use transformer_core::{ConfigError, ModelError};

use crate::batch::BatchError;

/// A training run that cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A value of the training configuration is out of range.
    #[error("`{key}` is {value}; it must be {expected}")]
    Config {
        /// The configuration key.
        key: &'static str,
        /// The value found.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// The model's configuration contradicts itself.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// The training or validation pairs do not fit the batches or the model.
    #[error("{part} pairs: {source}")]
    Batches {
        /// `training` or `validation`.
        part: &'static str,
        /// What is wrong with them.
        source: BatchError,
    },
    /// A pair is longer than the model has positions.
    #[error(
        "{part} pairs: pair {index} has {length} tokens, more than the model's {max_len} learned positions"
    )]
    TooLong {
        /// `training` or `validation`.
        part: &'static str,
        /// Which pair, from 0.
        index: usize,
        /// Tokens of its longer side, `<eos>` or `<bos>` included.
        length: usize,
        /// Positions of the model.
        max_len: usize,
    },
    /// A pair holds a token that the model does not know.
    #[error(
        "{part} pairs: pair {index} holds token {token}, outside the vocabulary of {vocab_size}"
    )]
    UnknownToken {
        /// `training` or `validation`.
        part: &'static str,
        /// Which pair, from 0.
        index: usize,
        /// The token.
        token: u32,
        /// Entries of the vocabulary.
        vocab_size: usize,
    },
    /// The directory already holds a model or checkpoints.
    #[error("{} already holds a model; resume it, or choose another directory", .0.display())]
    Occupied(PathBuf),
    /// The checkpoint was made with other settings or other data.
    #[error("{}: made with {what} {before}, not {now}", path.display())]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// What differs.
        what: String,
        /// Its value in the checkpoint.
        before: String,
        /// Its value now.
        now: String,
    },
    /// A checkpoint's file is damaged.
    #[error("{}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A model directory could not be read or written.
    #[error(transparent)]
    Directory(#[from] ModelError),
    /// The loss is not a number any more.
    #[error(
        "the loss of update {update} is {loss}; a lower learning rate or a longer warm-up may help"
    )]
    Diverged {
        /// The update, from 1.
        update: usize,
        /// Its loss.
        loss: f64,
    },
}

impl TrainError {
    /// An input or output error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
