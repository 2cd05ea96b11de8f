//! The values of keys from a file, from flags and from `--set`, each with the place that set it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};
use transformer_train::data::is_standard_stream;

use super::error::{LAST_LINE, RunFileError};
use super::key::Key;
use super::keys;
use super::unknown::{is_table, section, unknown_key, unknown_section};
use crate::process::read_regular;

/// The key whose value replaces the values of its section from lower places.
const PRESET: &str = "model.preset";

/// Values for keys.
#[derive(Debug, Clone, Default)]
pub struct Values {
    given: BTreeMap<&'static str, Given>,
}

#[derive(Debug, Clone)]
struct Given {
    /// `None` restores the key's default.
    value: Option<Value>,
    origin: Origin,
}

impl Given {
    /// The value of two settings of parts of one key.
    fn merged_into(self, before: Self) -> Self {
        match (before, self) {
            (
                Self {
                    value: Some(Value::Table(table)),
                    origin: Origin::Setting(one),
                },
                Self {
                    value: Some(Value::Table(part)),
                    origin: Origin::Setting(other),
                },
            ) => Self {
                value: Some(Value::Table(merged(table, part))),
                origin: Origin::Setting(format!("{one} --set {other}")),
            },
            (_, given) => given,
        }
    }
}

/// The entries of both tables; where both have a value, that of `part`.
fn merged(mut table: Table, part: Table) -> Table {
    for (name, value) in part {
        let value = match (table.remove(&name), value) {
            (Some(Value::Table(table)), Value::Table(part)) => Value::Table(merged(table, part)),
            (_, value) => value,
        };
        table.insert(name, value);
    }
    table
}

/// The place that set a value.
#[derive(Debug, Clone)]
enum Origin {
    File {
        path: PathBuf,
        /// The line, from 1.
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
    /// When the file cannot be read, is not TOML, or has an unknown key.
    pub fn from_file(path: &Path) -> Result<Self, RunFileError> {
        match is_standard_stream(path) {
            true => {
                let path = Path::new("standard input");
                Self::parse(path, &read(path, Ok(io::stdin()))?)
            }
            false => Self::parse(path, &read(path, fs::File::open(path))?),
        }
    }

    /// The values of the `run.toml` of a run, which may have been edited by hand.
    ///
    /// # Errors
    /// As for [`from_file`](Self::from_file). Also when the end of the file is missing, because the missing keys would
    /// get their defaults.
    pub fn from_file_of_run(path: &Path) -> Result<Self, RunFileError> {
        let text = read_of_run(path).map_err(|source| RunFileError::Io {
            path: path.to_owned(),
            source,
        })?;
        if !is_whole(&text) {
            return Err(RunFileError::CutOff {
                path: path.to_owned(),
            });
        }
        let mut values = Self::parse(path, &text)?;
        if values.is_given("data.valid") {
            // Earlier versions wrote this key, though it had no effect.
            values.given.remove("data.hold_out");
        }
        Ok(values)
    }

    /// The values of a file with this text.
    fn parse(path: &Path, text: &str) -> Result<Self, RunFileError> {
        let file = File { path, text };
        let sections = DeTable::parse(text).map_err(|error| RunFileError::Syntax {
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

    /// The values of `KEY=VALUE` arguments. A value that is not TOML is read as a string. An empty value restores the
    /// key's default. Arguments that set different parts of one key set all of them.
    ///
    /// # Errors
    /// The first argument that does not have this form or names an unknown key.
    pub fn from_settings(settings: &[String]) -> Result<Self, RunFileError> {
        let mut values = Self::default();
        for text in settings {
            let form = || RunFileError::Setting { text: text.clone() };
            let (path, value) = text.split_once('=').ok_or_else(form)?;
            let path = path.trim();
            let place = format!("--set {text}");
            let (key, part) = match keys::of_path(path) {
                Some((key, part)) if part.split('.').count() <= MAX_PARTS => (key, part),
                _ => return Err(unknown_key(place, path)),
            };
            let value = match value.trim() {
                "" => None,
                value => Some(nested(part, toml_or_text(value, &place)?)),
            };
            let mut given = Given {
                value,
                origin: Origin::Setting(text.clone()),
            };
            if let Some(before) = values.given.remove(key.path)
                && !part.is_empty()
            {
                given = given.merged_into(before);
            }
            values.given.insert(key.path, given);
        }
        Ok(values)
    }

    /// Adds the value of the key's flag.
    ///
    /// # Errors
    /// When the key is unknown, or TOML cannot represent the value: an integer above 2⁶³ - 1, a path that is not UTF-8.
    pub fn set_by_flag(&mut self, path: &str, value: impl Serialize) -> Result<(), RunFileError> {
        let key = keys::find(path).ok_or_else(|| unknown_key("flags".into(), path))?;
        let flag = key.flag.unwrap_or(key.path);
        let value = Value::try_from(value).map_err(|error| RunFileError::Value {
            subject: flag.into(),
            rule: format!(
                "{error}; whole numbers are at most {}, and paths must be UTF-8",
                i64::MAX
            ),
        })?;
        let given = Given {
            value: Some(value),
            origin: Origin::Flag(flag),
        };
        self.given.insert(key.path, given);
        Ok(())
    }

    /// These values, and the values of `lower` for keys without a value here.
    ///
    /// A preset here replaces the whole model of `lower`. Otherwise the keys of a file, or of a run's `run.toml`, would
    /// override every value of the preset.
    pub fn over(self, mut lower: Self) -> Self {
        if self.is_given(PRESET) {
            lower.given.retain(|path, _| !path.starts_with("model."));
        }
        lower.given.extend(self.given);
        lower
    }

    /// Whether a key has a value.
    pub fn is_given(&self, path: &str) -> bool {
        self.value(path).is_some()
    }

    /// The value of a key, if it is a string.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.value(path)?.as_str()
    }

    /// The flag that set a key.
    pub fn flag(&self, path: &str) -> Option<&'static str> {
        match self.given.get(path)?.origin {
            Origin::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// A key and its value, with the place that set it: the beginning of an error message.
    pub fn subject(&self, path: &str, value: impl Display) -> String {
        let Some(Given {
            value: as_given,
            origin,
        }) = self.given.get(path)
        else {
            return format!("`{path}` = {value}");
        };
        match origin {
            Origin::Flag(flag) => format!("{flag} {value}"),
            Origin::Setting(text) => format!("--set {text}"),
            Origin::File { path: file, line } => {
                // As it is written: 1e99 instead of a hundred digits.
                let value = as_given
                    .as_ref()
                    .map_or(value.to_string(), Value::to_string);
                format!("{}: line {line}: `{path}` = {value}", file.display())
            }
        }
    }

    /// The file and line, or the argument, that set a key, with a colon; empty for flags and defaults.
    pub fn place(&self, path: &str) -> String {
        match self.given.get(path).map(|given| &given.origin) {
            Some(Origin::Setting(text)) => format!("--set {text}: "),
            Some(Origin::File { path, line }) => format!("{}: line {line}: ", path.display()),
            Some(Origin::Flag(_)) | None => String::new(),
        }
    }

    /// The given value of a key.
    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        self.given.get(path)?.value.as_ref()
    }

    /// The error about the value of a key.
    pub fn refuse(&self, path: &str, value: impl Display, rule: impl Into<String>) -> RunFileError {
        RunFileError::Value {
            subject: self.subject(path, value),
            rule: rule.into(),
        }
    }
}

/// The maximum number of bytes of a run file, because a device may have no end.
const MAX_BYTES: u64 = 1 << 20;

/// The text of an input, which may be a pipe.
fn read(path: &Path, input: io::Result<impl Read>) -> Result<String, RunFileError> {
    let mut text = String::new();
    let read = input
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .and_then(|_| match text.len() as u64 > MAX_BYTES {
            true => Err(io::Error::other(format!("more than {MAX_BYTES} bytes"))),
            false => Ok(text),
        });
    read.map_err(|source| RunFileError::Io {
        path: path.to_owned(),
        source,
    })
}

/// The text of the `run.toml` of a run. It must be a regular file, because a pipe could block the program, and a device
/// may have no end. transformer-train reads the other files of a run in the same way.
///
/// # Errors
/// When it is not a regular file, or cannot be read.
pub fn read_of_run(path: &Path) -> io::Result<String> {
    String::from_utf8(read_regular(path)?).map_err(io::Error::other)
}

/// Whether a file has its last line, which an editor may have moved.
pub(super) fn is_whole(text: &str) -> bool {
    text.lines().any(|line| line.trim_end() == LAST_LINE)
}

/// A file while it is read.
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
        let place = self.place(line);
        match (content, section(name)) {
            (DeValue::Table(keys), Some(_)) => Ok(keys),
            (DeValue::Table(_), None) => Err(unknown_section(place, name)),
            (_, Some(section)) => Err(is_table(&place, section)),
            (_, None) => Err(unknown_key(place, name)),
        }
    }

    /// A key and its value in the file.
    fn given(
        &self,
        section: &str,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        line: usize,
    ) -> Result<(&'static Key, Given), RunFileError> {
        let path = format!("{section}.{name}");
        let key = keys::find(&path).ok_or_else(|| unknown_key(self.place(line), &path))?;
        let value = owned(value.clone(), || format!("{}: `{path}`", self.place(line)))?;
        let origin = Origin::File {
            path: self.path.to_owned(),
            line,
        };
        let value = Some(value);
        Ok((key, Given { value, origin }))
    }
}

/// The maximum number of names below a key; real keys have at most two.
const MAX_PARTS: usize = 8;

/// The value at a path below a key: `a.b` and 1 are `{ a = { b = 1 } }`.
pub(super) fn nested(below: &str, value: Value) -> Value {
    if below.is_empty() {
        return value;
    }
    below.rsplit('.').fold(value, |value, name| {
        let table = Table::from_iter([(name.to_owned(), value)]);
        Value::Table(table)
    })
}

/// The value of a `--set`, which `place` names.
fn toml_or_text(text: &str, place: &str) -> Result<Value, RunFileError> {
    match DeValue::parse(text) {
        Ok(value) => owned(value, || place.to_owned()),
        Err(_) => Ok(Value::String(text.to_owned())),
    }
}

/// A parsed value, unless it is a number that is out of range.
fn owned(
    value: Spanned<DeValue<'_>>,
    subject: impl FnOnce() -> String,
) -> Result<Value, RunFileError> {
    let is_whole = value.get_ref().is_integer();
    let owned = Value::deserialize(ValueDeserializer::from(value));
    owned.map_err(|error| RunFileError::Value {
        subject: subject(),
        rule: match is_whole {
            true => format!("is out of range: whole numbers are at most {}", i64::MAX),
            false => error.message().to_owned(),
        },
    })
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
    fn settings_of_parts_of_a_key_are_one_value() {
        let values = settings(&[
            "model.positions.relative-bias.buckets=16",
            "model.positions.relative-bias.max_distance=40",
            "data.train=\"all.tsv\"",
            "data.train.file=one.tsv",
            "data.train.weight=3.0",
            "data.train.weight=2.0",
        ])
        .unwrap();
        let value = |path: &str| values.value(path).unwrap().to_string();
        assert_eq!(
            value("model.positions"),
            "{ relative-bias = { buckets = 16, max_distance = 40 } }"
        );
        assert_eq!(value("data.train"), "{ file = \"one.tsv\", weight = 2.0 }");
        let two = settings(&[
            "model.positions.learned.max_len=9",
            "model.positions.rotary.base=2.0",
        ]);
        let error = crate::run_file::RunFile::read(&two.unwrap())
            .unwrap_err()
            .to_string();
        let subject = "--set model.positions.learned.max_len=9 --set model.positions.rotary.base=2.0: must be";
        assert!(error.starts_with(subject), "{error}");
    }

    #[test]
    fn a_setting_that_is_none_is_refused() {
        for (text, expected) in [
            (
                "training.warmup",
                "--set training.warmup: must be KEY=VALUE, such as training.updates=1000",
            ),
            (
                "=3",
                "--set =3: the key is empty; an example of a key is `training.updates`",
            ),
            (
                "model.d_modle=3",
                "--set model.d_modle=3: unknown key `model.d_modle`; did you mean `model.d_model`?",
            ),
            (
                "training.lr=3",
                "--set training.lr=3: unknown key `training.lr`; did you mean `training.peak_rate`?",
            ),
            (
                "training.updates.x=3",
                "--set training.updates.x=3: unknown key `training.updates.x`; did you mean `training.updates`?",
            ),
            (
                "training=3",
                "--set training=3: `training`: is a table, `[training]`; set one of its keys, such as `training.seed`",
            ),
            (
                "model.src_vocab_size=3",
                "--set model.src_vocab_size=3: `model.src_vocab_size`: cannot be set: it comes from the tokenizer",
            ),
        ] {
            assert_eq!(settings(&[text]).unwrap_err().to_string(), expected);
        }
        // 120 000 nested tables would overflow the stack.
        let deep = format!("model.positions{}=1", ".a".repeat(120_000));
        let error = settings(&[&deep]).unwrap_err().to_string();
        assert!(error.contains("unknown key"), "{}", &error[..200]);
        for number in ["9223372036854775808", "99999999999999999999"] {
            let text = format!("training.seed={number}");
            let expected = "is out of range: whole numbers are at most 9223372036854775807";
            assert_eq!(
                settings(&[&text]).unwrap_err().to_string(),
                format!("--set {text}: {expected}")
            );
        }
    }

    #[test]
    fn a_preset_replaces_the_model_below_it_and_an_empty_setting_a_value() {
        let below = settings(&["model.d_model=64", "training.warmup=7"]).unwrap();
        let above = settings(&["model.preset=tiny", "model.d_ff=32", "training.warmup="]);
        let values = above.unwrap().over(below);
        assert!(!values.is_given("model.d_model") && values.is_given("model.d_ff"));
        let run = crate::run_file::RunFile::read(&values).unwrap();
        assert_eq!(run.training.warmup, 800);
    }

    /// Every key is given a value of a wrong type.
    #[test]
    fn a_value_of_another_type_is_refused_in_plain_words() {
        for (text, rule) in [
            (
                "training.warmup=many",
                "must be a whole number of at least 1",
            ),
            (
                "training.updates=-1",
                "must be a whole number of at least 1",
            ),
            (
                "training.updates=1e99",
                "must be a whole number of at least 1",
            ),
            ("training.seed=-1", "must be a whole number of at least 0"),
            (
                "validation.samples=-1",
                "must be a whole number of at least 0",
            ),
            ("data.hold_out=-1", "must be a whole number of at least 1"),
            ("training.peak_rate=fast", "must be a number"),
            ("log.json=1", "must be true or false"),
            ("init.model=3", "must be a path, in quotes"),
            (
                "model.preset=tinny",
                "must be one of `tiny`, `multi30k`, `small`, `base`, `big`",
            ),
            ("model.norm=3", "must be `post` or `pre`"),
            (
                "model.positions=learned",
                "must be \"sinusoidal\", \"alibi\", learned with a number of positions, such as { learned = { max_len = 256 } }, { sines-then-cosines = { inclusive = false, first = 0 } }, { relative = { max_distance = 16 } }, { relative-bias = { buckets = 32, max_distance = 128 } }, or { rotary = { base = 10000.0 } }",
            ),
            (
                "model.positions.learned.max_len=-1",
                "must be \"sinusoidal\", \"alibi\", learned with a number of positions, such as { learned = { max_len = 256 } }, { sines-then-cosines = { inclusive = false, first = 0 } }, { relative = { max_distance = 16 } }, { relative-bias = { buckets = 32, max_distance = 128 } }, or { rotary = { base = 10000.0 } }",
            ),
            ("training.precision=f16", "must be `f32` or `bf16`"),
            (
                "validation.best_by=ter",
                "must be one of `loss`, `perplexity`, `accuracy`, `bleu`, `chrf`, `exact_match`, `wer`, `token_error_rate`",
            ),
            (
                "validation.metrics=[\"ter\"]",
                "must be a list of metrics, such as [\"bleu\", \"chrf\"]; the metrics are `bleu`, `chrf`, `exact_match`, `wer`, `token_error_rate`",
            ),
            (
                "init.freeze=encoder.*",
                "must be a list of strings, such as [\"encoder.*\"]",
            ),
            // A list as a shell passes it without quotes around it.
            (
                "init.freeze=[encoder.*]",
                "must be a list of strings, such as [\"encoder.*\"], in a shell --set 'init.freeze=[\"encoder.*\"]'",
            ),
            (
                "data.train=3",
                "a corpus is \"FILE\", { file = \"FILE\" } or { source = \"FILE\", target = \"FILE\" }",
            ),
        ] {
            let values = settings(&[text]).unwrap();
            let error = crate::run_file::RunFile::read(&values).unwrap_err();
            assert_eq!(error.to_string(), format!("--set {text}: {rule}"));
        }
        // A rule for each type, whatever the value.
        for key in keys::all() {
            let values = settings(&[&format!("{}=1979-05-27T07:32:00Z", key.path)]).unwrap();
            if let Err(error) = crate::run_file::RunFile::read(&values) {
                let error = error.to_string();
                let rule = [": must be ", ": a corpus is ", ": needs "];
                assert!(rule.iter().any(|rule| error.contains(rule)), "{error}");
                let parser = ["variant", "invalid", "expected", "usize", "f64", "``"];
                assert!(!parser.iter().any(|word| error.contains(word)), "{error}");
            }
        }
    }
}
