//! The keys of Hugging Face's JSON files. A null value counts as absent, unless a method says otherwise.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::formats::error::ModelError;
use crate::formats::files::read_json;
use crate::formats::format::Files;
use crate::formats::names::CONFIG_FILE;

/// Maximum characters of a value in an error.
const MOST_SHOWN: usize = 60;

/// The keys and values of a file.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    path: PathBuf,
    values: Map<String, Value>,
}

impl Keys {
    fn parse(path: PathBuf, text: &str) -> Result<Self, ModelError> {
        match serde_json::from_str(text) {
            Ok(values) => Ok(Self { path, values }),
            Err(source) => Err(ModelError::Json { path, source }),
        }
    }

    /// The keys of a directory's `config.json`.
    pub fn of_config(files: &Files) -> Result<Self, ModelError> {
        Self::parse(files.path(CONFIG_FILE), files.config_text()?)
    }

    /// Reads a file, if there is one.
    pub fn read_if_there(path: &Path) -> Result<Option<Self>, ModelError> {
        match read_json(path) {
            Ok(text) => Self::parse(path.to_owned(), &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ModelError::io(path)(error)),
        }
    }

    /// The keys of a file to be written.
    pub fn new(path: PathBuf, values: Map<String, Value>) -> Self {
        Self { path, values }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        format!("{:#}\n", Value::Object(self.values.clone()))
    }

    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    pub fn is_absent(&self, key: &str) -> bool {
        !self.values.contains_key(key)
    }

    pub fn is_null(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(Value::is_null)
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.values.insert(key.to_owned(), value);
    }

    pub fn size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.converted(key, "not a size", |value| {
            value.as_u64().and_then(|size| usize::try_from(size).ok())
        })
    }

    pub fn sizes(&self, key: &str) -> Result<Vec<usize>, ModelError> {
        let sizes = self.converted(key, "not a list of sizes", |value| {
            let size = |value: &Value| usize::try_from(value.as_u64()?).ok();
            value.as_array()?.iter().map(size).collect()
        });
        Ok(sizes?.unwrap_or_default())
    }

    /// A size that every model must have.
    pub fn size_of_all(&self, key: &str) -> Result<usize, ModelError> {
        self.size(key)?
            .ok_or_else(|| self.refusal(key, "not a size"))
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.converted(key, "not a number", Value::as_f64)
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.converted(key, "not true or false", Value::as_bool)
    }

    /// A flag with a default if absent; null is false, as in Python.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        let default = default && self.is_absent(key);
        Ok(self.flag(key)?.unwrap_or(default))
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.converted(key, "not a string", Value::as_str)
    }

    /// A token, or the only token of a list.
    pub fn token(&self, key: &str) -> Result<Option<u32>, ModelError> {
        self.converted(key, "not a single token", |value| match value {
            Value::Array(tokens) if tokens.len() == 1 => token(&tokens[0]),
            value => token(value),
        })
    }

    pub fn tokens(&self, key: &str) -> Result<Vec<u32>, ModelError> {
        let tokens = self.converted(key, "not a list of tokens", |value| {
            value.as_array()?.iter().map(token).collect()
        });
        Ok(tokens?.unwrap_or_default())
    }

    /// A list of words with one token each.
    pub fn words(&self, key: &str) -> Result<Vec<u32>, ModelError> {
        let words = self.converted(key, "not a list of words of one token each", |value| {
            let words = value.as_array()?.iter();
            let words = words.map(|word| match word.as_array()?.as_slice() {
                [only] => token(only),
                _ => None,
            });
            words.collect()
        });
        Ok(words?.unwrap_or_default())
    }

    /// An error that names a key and its value.
    pub fn refusal(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::Unsupported {
            path: self.path.clone(),
            key: key.to_owned(),
            value: shown(self.values.get(key)),
            problem: problem.into(),
        }
    }

    /// The value of a key, unless it is absent.
    fn converted<'a, T>(
        &'a self,
        key: &str,
        problem: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(self.refusal(key, problem)),
        }
    }
}

fn token(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|token| u32::try_from(token).ok())
}

/// A value, as shown in errors.
pub(crate) fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "absent".to_owned();
    };
    let text = value.to_string();
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
