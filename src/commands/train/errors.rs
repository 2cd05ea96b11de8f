//! Errors of the library, in the words of the run file and of the flags.

use std::path::{Path, PathBuf};

use transformer_core::ConfigError;
use transformer_program::run_file::{Values, key_of, path_of};
use transformer_train::TrainError;

/// In place of a value that a configuration has not.
const ABSENT: &str = "absent";

/// An error of training, by the keys and the places that gave their values.
pub fn train_error(error: TrainError, values: &Values) -> String {
    match error {
        TrainError::Config {
            key,
            value,
            expected,
        } => {
            let path = key_of(key).map_or(key, |key| key.path);
            let expected = in_words_of_file(expected);
            format!("{}: must be {expected}", values.subject(path, value))
        }
        TrainError::Model(error) => config_error(&error, values),
        TrainError::OtherRun {
            path,
            what,
            before,
            now,
        } => {
            let difference = difference(&what, &before, &now, values);
            format!("{}: {difference}", path.display())
        }
        error @ (TrainError::Diverged { .. } | TrainError::ValidationLoss { .. }) => {
            let advice = "a lower learning rate or a longer warm-up";
            let flags = "a lower --peak-rate or a longer --warmup";
            error.to_string().replace(advice, flags)
        }
        TrainError::InUse(out) => format!(
            "{} is in use by another training run; end that one first, or choose another --out",
            out.display()
        ),
        error => error.to_string(),
    }
}

/// An error of training in `out`, where the pairs to validate on were read from these files.
pub fn run_error(
    error: TrainError,
    values: &Values,
    valid_files: &[PathBuf],
    out: &Path,
) -> String {
    match error {
        TrainError::OtherValidation { before, now, .. } => {
            let files = valid_files.iter();
            let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
            let (files, out) = (files.join(", "), out.display());
            format!(
                "{files}: {now}, but the run in {out} is validated on {before}; validate on those again, or begin \
                 a run from its model by --set init.model={out} and another --out"
            )
        }
        error => train_error(error, values),
    }
}

/// A model's configuration that contradicts itself, by the keys and the place that gave one of them its value.
pub fn config_error(error: &ConfigError, values: &Values) -> String {
    let text = error.to_string();
    let named = text.split('`').skip(1).step_by(2).filter_map(key_of);
    let mut places = named.map(|key| values.place(key.path));
    let place = places.find(|place| !place.is_empty());
    format!("{}{}", place.unwrap_or_default(), in_words_of_file(&text))
}

/// With the run file's keys in place of the library's names, which stand in backticks.
fn in_words_of_file(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts: Vec<_> = parts
        .map(|(index, part)| match index % 2 {
            0 => part,
            _ => path_of(part).unwrap_or(part),
        })
        .collect();
    parts.join("`")
}

/// In what a run that is to be resumed differs from the one before.
fn difference(what: &str, before: &str, now: &str, values: &Values) -> String {
    let option = what.trim_matches('`');
    // Runs of earlier versions have their peak rate as a factor of the paper's.
    let unit = match option {
        "learning_rate_factor" => " times the paper's",
        _ => "",
    };
    let what = match key_of(option) {
        None => what.to_owned(),
        Some(key) => match values.flag(key.path) {
            Some(flag) if option.ends_with("vocab_size") => format!("another {flag}: {what}"),
            Some(flag) => flag.to_owned(),
            None => match values.flag("model.preset") {
                Some(flag) if key.path.starts_with("model.") => format!("another {flag}: {what}"),
                _ => format!("`{}`", key.path),
            },
        },
    };
    match (before, now) {
        (ABSENT, now) => format!("made without {what}, not with {now}{unit}"),
        (before, ABSENT) => format!("made with {what} {before}{unit}, not without"),
        (before, now) => format!("made with {what} {before}{unit}, not {now}{unit}"),
    }
}
