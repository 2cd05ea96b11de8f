//! Keys that have no effect beside another one: given together, they contradict each other.

use super::error::RunFileError;
use super::keys::{self, RunFile};
use super::values::Values;

/// Keys beside which others have no effect: those, and what the key gives.
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
    /// The key beside which another one has no effect.
    pub(super) fn overruled_by(&self, path: &str) -> Option<&'static str> {
        self.overruling(path).map(|(key, _)| key)
    }

    /// The key beside which another one has no effect, and what it gives.
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

    /// A key that is given must have an effect. A key with its default value is not given.
    ///
    /// # Errors
    /// The first key that has none, with the key that overrules it.
    pub(super) fn check_effects(&self, values: &Values) -> Result<(), RunFileError> {
        for key in keys::all() {
            if let (Some(value), Some((other, gives))) =
                (values.value(key.path), self.overruling(key.path))
            {
                let path = key.path;
                let rule = format!(
                    "`{path}` has no effect beside `{other}`, which gives {gives}; leave out one of the two"
                );
                return Err(values.refuse(path, value, rule));
            }
        }
        Ok(())
    }
}
