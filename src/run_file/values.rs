//! The values that a file, flags and `--set` give to keys, each with the place that gave it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::error::RunFileError;
use super::key::{self, Key};
use super::keys::SECTIONS;

/// The key whose value replaces those of its section that were given before it.
const PRESET: &str = "model.preset";

/// Values for keys.
#[derive(Debug, Clone, Default)]
pub struct Values {
    given: BTreeMap<&'static str, Given>,
}

#[derive(Debug, Clone)]
struct Given {
    /// `None` takes the key back to its default.
    value: Option<Value>,
    origin: Origin,
}

/// The place that gave a value.
#[derive(Debug, Clone)]
enum Origin {
    File {
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    Flag(&'static str),
    /// The argument of a `--set`.
    Setting(String),
}

impl Values {
    /// The values of a TOML file.
    ///
    /// # Errors
    /// When the file cannot be read, is not TOML, or has a key that is unknown.
    pub fn from_file(path: &Path) -> Result<Self, RunFileError> {
        let text = fs::read_to_string(path).map_err(|source| RunFileError::Io {
            path: path.to_owned(),
            source,
        })?;
        let file = File { path, text: &text };
        let sections = DeTable::parse(&text).map_err(|error| RunFileError::Syntax {
            path: path.to_owned(),
            line: file.line(error.span().map_or(0, |span| span.start)),
            problem: error.message().to_owned(),
        })?;
        let mut values = Self::default();
        for (name, content) in sections.get_ref().iter() {
            let line = file.line(name.span().start);
            let keys = file.section(name.get_ref(), content.get_ref(), line)?;
            for (key, value) in keys.iter() {
                let line = file.line(key.span().start);
                let (key, given) = file.given(name.get_ref(), key.get_ref(), value, line)?;
                values.given.insert(key.path, given);
            }
        }
        Ok(values)
    }

    /// The values of `KEY=VALUE` arguments. A value is TOML, or else a string; an empty one takes the key back to
    /// its default.
    ///
    /// # Errors
    /// The first argument that has not this form or names an unknown key.
    pub fn from_settings(settings: &[String]) -> Result<Self, RunFileError> {
        let mut values = Self::default();
        for text in settings {
            let form = || RunFileError::Setting { text: text.clone() };
            let (path, value) = text.split_once('=').ok_or_else(form)?;
            let path = path.trim();
            let place = || format!("--set {text}");
            let (key, below) = known(path).ok_or_else(|| unknown(place(), path))?;
            let value = match value.trim() {
                "" => None,
                value => Some(nested(below, toml_or_text(value))),
            };
            let origin = Origin::Setting(text.clone());
            values.given.insert(key.path, Given { value, origin });
        }
        Ok(values)
    }

    /// Adds the value that the key's flag gives.
    ///
    /// # Errors
    /// When the key is unknown, or TOML has no such value: an integer above 2⁶³ - 1, a path that is not UTF-8.
    pub fn set_by_flag(&mut self, path: &str, value: impl Serialize) -> Result<(), RunFileError> {
        let key = key::find(path).ok_or_else(|| unknown("flags".into(), path))?;
        let flag = key.flag.unwrap_or(key.path);
        let value = Value::try_from(value).map_err(|error| RunFileError::Value {
            subject: flag.into(),
            rule: error.to_string(),
        })?;
        let given = Given {
            value: Some(value),
            origin: Origin::Flag(flag),
        };
        self.given.insert(key.path, given);
        Ok(())
    }

    /// These values, and those of `lower` for keys that have none here.
    ///
    /// A preset here replaces the whole model of `lower`: else the keys of a file, or of a run's resolved file,
    /// would leave nothing of it.
    pub fn over(self, mut lower: Self) -> Self {
        if self.given.contains_key(PRESET) {
            lower.given.retain(|path, _| !path.starts_with("model."));
        }
        lower.given.extend(self.given);
        lower
    }

    /// Whether a key has a value.
    pub fn is_given(&self, path: &str) -> bool {
        self.value(path).is_some()
    }

    /// The flag that gave a key its value.
    pub fn flag(&self, path: &str) -> Option<&'static str> {
        match self.given.get(path)?.origin {
            Origin::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// A key and its value, with the place that gave it: the beginning of an error about it.
    pub fn subject(&self, path: &str, value: impl Display) -> String {
        match self.given.get(path).map(|given| &given.origin) {
            Some(Origin::Flag(flag)) => format!("{flag} {value}"),
            Some(Origin::Setting(text)) => format!("--set {text}"),
            Some(Origin::File { path: file, line }) => {
                format!("{}: line {line}: `{path}` = {value}", file.display())
            }
            None => format!("`{path}` = {value}"),
        }
    }

    /// The file and line, or the argument, that gave a key its value, with a colon; empty for flags and defaults.
    pub fn place(&self, path: &str) -> String {
        match self.given.get(path).map(|given| &given.origin) {
            Some(Origin::Setting(text)) => format!("--set {text}: "),
            Some(Origin::File { path, line }) => format!("{}: line {line}: ", path.display()),
            Some(Origin::Flag(_)) | None => String::new(),
        }
    }

    fn value(&self, path: &str) -> Option<&Value> {
        self.given.get(path)?.value.as_ref()
    }

    /// The value of a key, or its default.
    ///
    /// # Errors
    /// When the value is not of the key's type.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        default: T,
    ) -> Result<T, RunFileError> {
        let Some(value) = self.value(path) else {
            return Ok(default);
        };
        let read = value.clone().try_into();
        read.map_err(|error: toml::de::Error| RunFileError::Value {
            subject: self.subject(path, value),
            rule: rule(error.message()),
        })
    }
}

/// A file that is being read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// The line, from 1, of a byte.
    fn line(&self, byte: usize) -> usize {
        let before = self.text.get(..byte).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    fn place(&self, line: usize) -> String {
        format!("{}: line {line}", self.path.display())
    }

    /// The keys of a section.
    fn section<'t, 'i>(
        &self,
        name: &str,
        content: &'t DeValue<'i>,
        line: usize,
    ) -> Result<&'t DeTable<'i>, RunFileError> {
        let is_known = SECTIONS.iter().any(|section| section.name == name);
        match content {
            DeValue::Table(keys) if is_known => Ok(keys),
            DeValue::Table(_) => Err(RunFileError::UnknownSection {
                place: self.place(line),
                section: name.to_owned(),
                nearest: key::nearest_section(name),
            }),
            _ if is_known => Err(RunFileError::Value {
                subject: format!("{}: `{name}`", self.place(line)),
                rule: format!("must be a section, `[{name}]`"),
            }),
            _ => Err(unknown(self.place(line), name)),
        }
    }

    /// A key and what the file gives it.
    fn given(
        &self,
        section: &str,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        line: usize,
    ) -> Result<(&'static Key, Given), RunFileError> {
        let path = format!("{section}.{name}");
        let key = key::find(&path).ok_or_else(|| unknown(self.place(line), &path))?;
        let value = Value::deserialize(ValueDeserializer::from(value.clone()));
        let value = value.map_err(|error| RunFileError::Value {
            subject: format!("{}: `{path}`", self.place(line)),
            rule: error.message().to_owned(),
        })?;
        let origin = Origin::File {
            path: self.path.to_owned(),
            line,
        };
        let value = Some(value);
        Ok((key, Given { value, origin }))
    }
}

/// The key of a path, which may go on below it, as `model.positions.learned.max_len` does.
fn known(path: &str) -> Option<(&'static Key, &str)> {
    key::all().find_map(|key| match path.strip_prefix(key.path)? {
        "" => Some((key, "")),
        below => Some((key, below.strip_prefix('.')?)),
    })
}

/// The value at a path below a key: `a.b` and 1 are `{ a = { b = 1 } }`.
fn nested(below: &str, value: Value) -> Value {
    if below.is_empty() {
        return value;
    }
    below.rsplit('.').fold(value, |value, name| {
        let table = Table::from_iter([(name.to_owned(), value)]);
        Value::Table(table)
    })
}

fn toml_or_text(text: &str) -> Value {
    match text.parse() {
        Ok(value) => value,
        Err(_) => Value::String(text.to_owned()),
    }
}

/// Keys of a model's configuration that are the tokenizer's.
const OF_TOKENIZER: [&str; 6] = [
    "model.src_vocab_size",
    "model.tgt_vocab_size",
    "model.pad_id",
    "model.bos_id",
    "model.eos_id",
    "model.excluded_tokens",
];

fn unknown(place: String, path: &str) -> RunFileError {
    if OF_TOKENIZER.contains(&path) {
        return RunFileError::Value {
            subject: format!("{place}: `{path}`"),
            rule: "is not set here: it is the tokenizer's".into(),
        };
    }
    RunFileError::UnknownKey {
        place,
        key: path.to_owned(),
        nearest: key::nearest(path),
    }
}

/// What a value must be, from the parser's error.
fn rule(message: &str) -> String {
    let names_types = message.starts_with("invalid") || message.starts_with("unknown variant");
    match message.rsplit_once("expected ") {
        Some((_, expected)) if names_types => format!("must be {}", plain(expected)),
        _ => message.to_owned(),
    }
}

/// A type, in plain words.
fn plain(expected: &str) -> &str {
    match expected {
        "u64" | "usize" => "a whole number, 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "string only" | "a string" | "path string" => "a string, in quotes",
        "a sequence" => "a list, in brackets",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(texts: &[&str]) -> Result<Values, RunFileError> {
        let texts: Vec<_> = texts.iter().map(ToString::to_string).collect();
        Values::from_settings(&texts)
    }

    #[test]
    fn a_setting_is_toml_or_else_a_string() {
        let values = settings(&[
            "data.train=a file.tsv",
            "training.warmup = 7",
            "training.peak_rate=-1e-3",
            "model.positions.learned.max_len=256",
            "validation.metrics=[\"bleu\"]",
            "data.valid=",
        ])
        .unwrap();
        let value = |path: &str| values.value(path).map(Value::to_string);
        assert_eq!(value("data.train").unwrap(), "\"a file.tsv\"");
        assert_eq!(value("training.warmup").unwrap(), "7");
        assert_eq!(value("training.peak_rate").unwrap(), "-0.001");
        assert_eq!(
            value("model.positions").unwrap(),
            "{ learned = { max_len = 256 } }"
        );
        assert_eq!(value("validation.metrics").unwrap(), "[\"bleu\"]");
        assert_eq!(value("data.valid"), None);
    }

    #[test]
    fn a_setting_that_is_none_is_refused() {
        for (text, expected) in [
            (
                "training.warmup",
                "--set training.warmup: must be KEY=VALUE, such as training.updates=1000",
            ),
            (
                "model.d_modle=3",
                "--set model.d_modle=3: unknown key `model.d_modle`; did you mean `model.d_model`?",
            ),
            (
                "model.src_vocab_size=3",
                "--set model.src_vocab_size=3: `model.src_vocab_size`: is not set here: it is the tokenizer's",
            ),
        ] {
            assert_eq!(settings(&[text]).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_preset_replaces_the_model_below_it_and_an_empty_setting_a_value() {
        let below = settings(&["model.d_model=64", "training.warmup=7"]).unwrap();
        let above = settings(&["model.preset=tiny", "model.d_ff=32", "training.warmup="]);
        let values = above.unwrap().over(below);
        assert!(!values.is_given("model.d_model") && values.is_given("model.d_ff"));
        assert_eq!(values.read("training.warmup", 800).unwrap(), 800);
    }

    #[test]
    fn a_value_of_another_type_is_refused_in_plain_words() {
        let values = settings(&["training.warmup=many", "log.json=1", "model.preset=tinny"]);
        let values = values.unwrap();
        let refused = |error: RunFileError| error.to_string();
        assert_eq!(
            refused(values.read::<usize>("training.warmup", 0).unwrap_err()),
            "--set training.warmup=many: must be a whole number, 0 or more"
        );
        assert_eq!(
            refused(values.read::<bool>("log.json", true).unwrap_err()),
            "--set log.json=1: must be true or false"
        );
        let preset = values.read::<Option<super::super::Preset>>("model.preset", None);
        assert_eq!(
            refused(preset.unwrap_err()),
            "--set model.preset=tinny: must be one of `tiny`, `multi30k`, `small`, `base`, `big`"
        );
    }
}
