//! Keys that have no effect beside another one: given together, they contradict each other.

use super::RunFile;
use super::error::RunFileError;
use super::keys::TokenizerKeys;
use super::values::Values;

/// Keys that give the tokenizers, each with those that then have no effect.
const GIVES_TOKENIZERS: [(&str, &[&str]); 3] = [
    (
        "init.model",
        &[
            "tokenizer.kind",
            "tokenizer.target_kind",
            "tokenizer.vocab_size",
            "tokenizer.shared",
            "tokenizer.file",
            "tokenizer.source_file",
            "tokenizer.target_file",
        ],
    ),
    (
        "tokenizer.file",
        &[
            "tokenizer.kind",
            "tokenizer.target_kind",
            "tokenizer.vocab_size",
            "tokenizer.source_file",
            "tokenizer.target_file",
        ],
    ),
    (
        "tokenizer.source_file",
        &[
            "tokenizer.kind",
            "tokenizer.target_kind",
            "tokenizer.vocab_size",
        ],
    ),
];

impl RunFile {
    /// The key beside which another one has no effect.
    pub(super) fn overruled_by(&self, path: &str) -> Option<&'static str> {
        let is_there = |gives: &str| match gives {
            "init.model" => self.init.model.is_some(),
            "tokenizer.file" => self.tokenizer.file.is_some(),
            _ => self.tokenizer.source_file.is_some(),
        };
        let mut overruling = GIVES_TOKENIZERS
            .into_iter()
            .filter(|(gives, keys)| is_there(gives) && keys.contains(&path));
        overruling.next().map(|(gives, _)| gives)
    }

    /// A key that is given must have an effect. A key with its default value is not given.
    ///
    /// # Errors
    /// The first key that has none, with the key that overrules it.
    pub(super) fn check_effects(&self, values: &Values) -> Result<(), RunFileError> {
        for key in TokenizerKeys::SECTION.keys {
            if let (Some(value), Some(gives)) =
                (values.value(key.path), self.overruled_by(key.path))
            {
                return Err(RunFileError::Value {
                    subject: values.subject(key.path, value),
                    rule: format!(
                        "`{}` has no effect beside `{gives}`, which gives the tokenizer; leave out one of the two",
                        key.path
                    ),
                });
            }
        }
        Ok(())
    }
}
