//! Keys that have no effect together with another key. Giving both is an error.

use super::error::RunFileError;
use super::keys::{self, RunFile};
use super::values::Values;

/// Keys that make others ineffective: the key, the ineffective keys, and what the key sets.
const OVERRULING: [(&str, &[&str], &str); 4] = [
    ("data.valid", &["data.hold_out"], "the validation pairs"),
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
        "the tokenizer",
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
        "the tokenizer",
    ),
    (
        "tokenizer.source_file",
        &[
            "tokenizer.kind",
            "tokenizer.target_kind",
            "tokenizer.vocab_size",
        ],
        "the tokenizer",
    ),
];

impl RunFile {
    /// The given key that makes the key `path` ineffective.
    pub(super) fn overruled_by(&self, path: &str) -> Option<&'static str> {
        self.overruling(path).map(|(key, _)| key)
    }

    /// The given key that makes the key `path` ineffective, and what it sets.
    fn overruling(&self, path: &str) -> Option<(&'static str, &'static str)> {
        let is_there = |key: &str| match key {
            "data.valid" => self.data.valid.is_some(),
            "init.model" => self.init.model.is_some(),
            "tokenizer.file" => self.tokenizer.file.is_some(),
            _ => self.tokenizer.source_file.is_some(),
        };
        let mut overruling = OVERRULING.into_iter();
        let found = overruling.find(|(key, others, _)| is_there(key) && others.contains(&path));
        found.map(|(key, _, gives)| (key, gives))
    }

    /// Checks that every given key has an effect. A key that only has its default value is not given.
    ///
    /// # Errors
    /// The first key without an effect, with the key that makes it ineffective.
    pub(super) fn check_effects(&self, values: &Values) -> Result<(), RunFileError> {
        for key in keys::all() {
            if let (Some(value), Some((other, gives))) =
                (values.value(key.path), self.overruling(key.path))
            {
                let path = key.path;
                let rule = format!(
                    "`{path}` has no effect together with `{other}`, which sets {gives}; remove one of the two"
                );
                return Err(values.refuse(path, value, rule));
            }
        }
        Ok(())
    }
}
