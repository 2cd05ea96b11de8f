//! Errors of the library, with the names of keys and flags.

use std::path::{Path, PathBuf};

use transformer_core::nn::ConfigError;
use transformer_train::TrainError;

use crate::run_file::{Values, key_of, path_of};

/// The advice on a loss that is not finite.
const STEADIER: &str = "a lower --peak-rate or a longer --warmup may help";

/// An error of training, with the keys and the places that set their values.
pub fn train_error(error: TrainError, values: &Values) -> String {
    match error {
        TrainError::Config {
            key,
            value,
            expected,
        } => {
            let path = key_of(key).map_or(key, |key| key.path);
            let expected = expected.with_names(in_file);
            format!("{}: must be {expected}", values.subject(path, value))
        }
        TrainError::Model(error) => config_error(&error, values),
        TrainError::OtherRun {
            path,
            key,
            before,
            now,
        } => {
            let difference = difference(&key, before.as_deref(), now.as_deref(), values);
            format!("{}: {difference}", path.display())
        }
        TrainError::OtherFrozen {
            path,
            parameter,
            is_frozen,
        } => {
            let [before, now] = match is_frozen {
                true => ["trained", "frozen"],
                false => ["frozen", "trained"],
            };
            format!(
                "{}: made with another `init.freeze`: `{parameter}` {before}, not {now}",
                path.display()
            )
        }
        TrainError::Diverged {
            skipped,
            update,
            loss,
            gradient_norm,
        } => format!(
            "consecutive updates skipped: {skipped}; the last, update {update}, has loss {loss} and gradient norm \
             {gradient_norm}; {STEADIER}"
        ),
        TrainError::ValidationLoss { update, loss } => {
            format!("the validation loss after update {update} is {loss}; {STEADIER}")
        }
        TrainError::InUse(out) => format!(
            "{} is in use by another training run; stop that run first, or choose another --out",
            out.display()
        ),
        error => error.to_string(),
    }
}

/// An error of training in `out`. The validation pairs were read from `valid_files`, and the keys `other_data` of
/// `[data]` differ from the earlier run.
pub fn run_error(
    error: TrainError,
    values: &Values,
    other_data: &[&str],
    valid_files: &[PathBuf],
    out: &Path,
) -> String {
    match error {
        error @ TrainError::OtherData { .. } => {
            let keys: Vec<_> = other_data.iter().map(|key| format!("`{key}`")).collect();
            let reason = match keys.as_slice() {
                [] => String::new(),
                [key] => format!("; {key} differs from the run"),
                keys => format!("; {} differ from the run", keys.join(", ")),
            };
            train_error(error, values) + &reason
        }
        TrainError::OtherValidation { before, now, .. } => {
            let files = valid_files.iter();
            let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
            let (files, out) = (files.join(", "), out.display());
            format!(
                "{files}: {now}, but the run in {out} is validated on {before}; use the same validation pairs, or \
                 start a new run from its model with --set init.model={out} and another --out"
            )
        }
        error => train_error(error, values),
    }
}

/// The error about a model configuration that contradicts itself, with the keys and the place that set one of them.
pub fn config_error(error: &ConfigError, values: &Values) -> String {
    let keys = error.keys().into_iter().filter_map(key_of);
    let mut places = keys.map(|key| values.place(key.path));
    let place = places.find(|place| !place.is_empty());
    format!("{}{}", place.unwrap_or_default(), error.with_names(in_file))
}

/// The run file's name for a key of the library's configurations.
fn in_file(key: &'static str) -> &'static str {
    path_of(key).unwrap_or(key)
}

/// The difference between a resumed run and the run before, in a key of the library's configurations.
fn difference(key: &str, before: Option<&str>, now: Option<&str>, values: &Values) -> String {
    // Runs of earlier versions record their peak rate as a factor of the paper's.
    let unit = match key {
        "learning_rate_factor" => " times the paper's",
        _ => "",
    };
    let what = match key_of(key) {
        None => format!("`{key}`"),
        Some(of_file) => match values.flag(of_file.path) {
            Some(flag) if key.ends_with("vocab_size") => format!("another {flag}: `{key}`"),
            Some(flag) => flag.to_owned(),
            None => match values.flag("model.preset") {
                Some(flag) if of_file.path.starts_with("model.") => {
                    format!("another {flag}: `{key}`")
                }
                _ => format!("`{}`", of_file.path),
            },
        },
    };
    match (before, now) {
        (Some(before), Some(now)) => format!("made with {what} {before}{unit}, not {now}{unit}"),
        (Some(before), None) => format!("made with {what} {before}{unit}, not without"),
        (None, now) => format!(
            "made without {what}, not with {}{unit}",
            now.unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library's errors say the same without naming flags.
    #[test]
    fn a_loss_that_is_not_finite_is_answered_by_flags() {
        let cases: [fn() -> TrainError; 2] = [
            || TrainError::Diverged {
                skipped: 10,
                update: 12,
                loss: f64::NAN,
                gradient_norm: f64::INFINITY,
            },
            || TrainError::ValidationLoss {
                update: 12,
                loss: f64::NAN,
            },
        ];
        for error in cases {
            let of_library = error().to_string();
            let (facts, advice) = of_library.rsplit_once("; ").expect("advice");
            assert_eq!(advice, "a lower learning rate or a longer warm-up may help");
            let expected = format!("{facts}; a lower --peak-rate or a longer --warmup may help");
            assert_eq!(train_error(error(), &Values::default()), expected);
        }
    }
}
