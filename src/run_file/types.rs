//! The error for a value of the wrong type.

use toml::Value;
use transformer_train::metrics::TextMetric;

use super::key::Key;
use super::keys::RunFile;
use super::values::nested;

const POSITIONS: &str = "must be \"sinusoidal\", \"alibi\", learned with a number of positions, such as { learned = { max_len = 256 } }, { sines-then-cosines = { inclusive = false, first = 0 } }, { relative = { max_distance = 16 } }, { relative-bias = { buckets = 32, max_distance = 128 } }, or { rotary = { base = 10000.0 } }";

/// The rule for the values of a key, given the parser's error about a wrong value.
pub(super) fn rule(key: &Key, error: &str) -> String {
    // For most types, the error about a wrong string lists the possible values.
    let probe = nested(key.path, Value::String(String::new())).try_into::<RunFile>();
    let probe = probe.err();
    let expected = probe.as_ref().map_or(error, |error| error.message());
    let expected = expected.rsplit_once("expected ");
    match (key.path, expected.map_or(error, |(_, expected)| expected)) {
        // These keys have their own error messages.
        ("data.train" | "data.valid", _) => error.to_owned(),
        ("model.positions", _) => POSITIONS.to_owned(),
        ("validation.metrics", _) => {
            let names = TextMetric::ALL.map(TextMetric::key).join("`, `");
            let list = list(key, error, "metrics", "[\"bleu\", \"chrf\"]");
            format!("{list}; the metrics are `{names}`")
        }
        (_, "a sequence") => list(key, error, "strings", "[\"encoder.*\"]"),
        (_, "usize" | "u64") => {
            let may_be_zero = key.default() == Some(Value::Integer(0));
            let least = if may_be_zero { 0 } else { 1 };
            format!("must be a whole number of at least {least}")
        }
        (_, "f64") => "must be a number".to_owned(),
        (_, "a boolean") => "must be true or false".to_owned(),
        (_, "a string") => "must be a string, in quotes".to_owned(),
        (_, "path string") => "must be a path, in quotes".to_owned(),
        (_, names) => format!("must be {names}"),
    }
}

/// The rule for a list. A shell removes double quotes, so that the value is not TOML and is read as a string.
fn list(key: &Key, error: &str, of: &str, example: &str) -> String {
    let in_a_shell = match error.starts_with("invalid type: string \"[") {
        true => format!(", in a shell --set '{}={example}'", key.path),
        false => String::new(),
    };
    format!("must be a list of {of}, such as {example}{in_a_shell}")
}
