//! The types of values, and each type's error for a value of another.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Value;
use transformer_core::{
    Activation, NormKind, NormPlacement, Positions, ProductPrecision, WeightTying,
};
use transformer_train::metrics::TextMetric;
use transformer_train::{Schedule, TokenizerKind};

use super::choices::BestBy;
use super::corpora::Corpora;
use super::key::Key;
use super::preset::Preset;

/// The type of a key's values.
pub(super) trait KeyType: Serialize + DeserializeOwned {
    /// The rule for a value of the key, given the parser's error about a wrong one.
    fn rule(key: &Key, error: &str) -> String;
}

impl<T: KeyType> KeyType for Option<T> {
    fn rule(key: &Key, error: &str) -> String {
        T::rule(key, error)
    }
}

impl KeyType for usize {
    fn rule(key: &Key, _error: &str) -> String {
        whole_number(key)
    }
}

impl KeyType for u64 {
    fn rule(key: &Key, _error: &str) -> String {
        whole_number(key)
    }
}

/// 0 is allowed only for keys whose default it is.
fn whole_number(key: &Key) -> String {
    let may_be_zero = (key.default)() == Some(Value::Integer(0));
    let least = if may_be_zero { 0 } else { 1 };
    format!("must be a whole number of at least {least}")
}

impl KeyType for f64 {
    fn rule(_key: &Key, _error: &str) -> String {
        "must be a number".into()
    }
}

impl KeyType for bool {
    fn rule(_key: &Key, _error: &str) -> String {
        "must be true or false".into()
    }
}

impl KeyType for String {
    fn rule(_key: &Key, _error: &str) -> String {
        "must be a string, in quotes".into()
    }
}

impl KeyType for PathBuf {
    fn rule(_key: &Key, _error: &str) -> String {
        "must be a path, in quotes".into()
    }
}

impl KeyType for Corpora {
    /// It reads every value itself.
    fn rule(_key: &Key, error: &str) -> String {
        error.to_owned()
    }
}

impl KeyType for Vec<String> {
    fn rule(key: &Key, error: &str) -> String {
        list(key, error, "strings", "[\"encoder.*\"]")
    }
}

impl KeyType for Vec<TextMetric> {
    fn rule(key: &Key, error: &str) -> String {
        let list = list(key, error, "metrics", "[\"bleu\", \"chrf\"]");
        let names = TextMetric::ALL.map(TextMetric::key).join("`, `");
        format!("{list}; the metrics are `{names}`")
    }
}

/// The rule for a list. A shell removes double quotes, and leaves a value that is no TOML, but a string.
fn list(key: &Key, error: &str, of: &str, example: &str) -> String {
    let in_a_shell = match error.starts_with("invalid type: string \"[") {
        true => format!(", in a shell --set '{}={example}'", key.path),
        false => String::new(),
    };
    format!("must be a list of {of}, such as {example}{in_a_shell}")
}

impl KeyType for Positions {
    fn rule(_key: &Key, _error: &str) -> String {
        "must be \"sinusoidal\", learned with a number of positions, such as { learned = { max_len = 256 } }, { sines-then-cosines = { inclusive = false, first = 0 } }, or { rotary = { base = 10000.0 } }"
            .into()
    }
}

/// Types whose values have names.
macro_rules! named {
    ($($type:ty),+) => {
        $(impl KeyType for $type {
            fn rule(_key: &Key, _error: &str) -> String {
                format!("must be {}", names::<Self>())
            }
        })+
    };
}

named!(
    Activation,
    BestBy,
    NormKind,
    NormPlacement,
    Preset,
    ProductPrecision,
    Schedule,
    TokenizerKind,
    WeightTying
);

/// The names of a type's values, from the parser's error about a name that none of them has.
fn names<T: DeserializeOwned>() -> String {
    let error = Value::String(String::new()).try_into::<T>().err();
    let message = error.as_ref().map_or("", |error| error.message());
    let names = message.rsplit_once("expected ");
    names.map_or(message, |(_, names)| names).to_owned()
}
