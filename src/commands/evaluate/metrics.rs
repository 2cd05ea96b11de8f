//! The metrics of `transformer evaluate`: those of `--metrics`, or those of the run that trained the model.

use std::io;
use std::path::Path;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Deserialize;
use transformer_core::formats::run_of_checkpoint;
use transformer_train::metrics::TextMetric;

use crate::commands::Result;
use crate::run_file::{RUN_FILE, read_of_run};

/// The metrics without `--metrics` and without a run that names metrics.
const DEFAULT: [TextMetric; 2] = [TextMetric::Bleu, TextMetric::Chrf];

/// The part of `run.toml` that is read here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RunFile {
    validation: Validation,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Validation {
    metrics: Vec<TextMetric>,
}

/// Reads the value of a flag: the name of a metric.
pub fn parser() -> impl TypedValueParser<Value = TextMetric> {
    let values = TextMetric::ALL.map(|metric| PossibleValue::new(metric.key()).help(help(metric)));
    PossibleValuesParser::new(values).try_map(|key| key.parse::<TextMetric>())
}

/// The explanation of a metric in `--help`.
fn help(metric: TextMetric) -> &'static str {
    match metric {
        TextMetric::Bleu => "BLEU, as computed by sacreBLEU",
        TextMetric::Chrf => "chrF2, as computed by sacreBLEU",
        TextMetric::ExactMatch => "Percentage of lines that are exactly right",
        TextMetric::WordErrorRate => {
            "100 − exact_match: the word error rate if a line is a word and its tokens are phones"
        }
        TextMetric::TokenErrorRate => {
            "Edits per space-separated token: the word error rate if a line is a sentence, the phone error rate if it is a word"
        }
    }
}

/// The metrics of the run that trained the model in a directory, which may be one of the run's checkpoints. They are
/// BLEU and chrF if the run names none.
///
/// # Errors
/// When `run.toml` cannot be read, or names an unknown metric.
pub fn of_model(model: &Path) -> Result<Vec<TextMetric>> {
    // An archive belongs to no run.
    if model.is_file() {
        return Ok(DEFAULT.to_vec());
    }
    let of_checkpoint = run_of_checkpoint(model);
    let path = of_checkpoint.as_deref().unwrap_or(model).join(RUN_FILE);
    let problem = |problem: &str| {
        let path = path.display();
        let problem = problem.replace('\n', " ");
        format!("{path}: {problem}; set the metrics with --metrics")
    };
    let text = match read_of_run(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DEFAULT.into()),
        Err(error) => return Err(problem(&error.to_string()).into()),
    };
    let run: RunFile = toml::from_str(&text).map_err(|error| {
        let before = error.span().map_or(0, |span| span.start);
        let line = 1 + text.bytes().take(before).filter(|&b| b == b'\n').count();
        problem(&format!("line {line}: {}", error.message()))
    })?;
    match run.validation.metrics {
        none if none.is_empty() => Ok(DEFAULT.into()),
        metrics => Ok(metrics),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The metrics of a run with this file, and of its checkpoint.
    fn found(run: &str) -> [std::result::Result<Vec<TextMetric>, String>; 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoint = folder.path().join("checkpoints/update-00000004");
        fs::create_dir_all(&checkpoint).expect("folders");
        fs::write(folder.path().join(RUN_FILE), run).expect("a file");
        let models = [folder.path(), &checkpoint];
        models.map(|model| of_model(model).map_err(|error| error.to_string()))
    }

    #[test]
    fn a_run_names_its_metrics() {
        let run = "[model]\nd_model = 8\n[validation]\nevery = 2\nmetrics = [\"wer\", \"token_error_rate\"]\n";
        let expected = vec![TextMetric::WordErrorRate, TextMetric::TokenErrorRate];
        assert_eq!(found(run), [Ok(expected.clone()), Ok(expected)]);
        for run in [
            "",
            "[validation]\nevery = 2\n",
            "[validation]\nmetrics = []\n",
        ] {
            let expected = DEFAULT.to_vec();
            assert_eq!(found(run), [Ok(expected.clone()), Ok(expected)], "{run}");
        }
    }

    #[test]
    fn a_model_without_a_run_is_measured_by_bleu_and_chrf() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = of_model(folder.path()).expect("metrics");
        assert_eq!(found, DEFAULT);
        // The file of another run, two folders up.
        let model = folder.path().join("models/model");
        fs::create_dir_all(&model).expect("folders");
        let run = "[validation]\nmetrics = [\"wer\"]\n";
        fs::write(folder.path().join(RUN_FILE), run).expect("a file");
        assert_eq!(of_model(&model).expect("metrics"), DEFAULT);
    }

    #[test]
    fn a_damaged_file_is_named_in_one_line() {
        for (run, place) in [
            ("[validation]\nmetrics = [\"ter\"]\n", "run.toml: line 2: "),
            ("[validation\n", "run.toml: line "),
        ] {
            for found in found(run) {
                let error = found.expect_err("an error");
                assert!(error.contains(place), "{error}");
                assert!(
                    error.ends_with("; set the metrics with --metrics"),
                    "{error}"
                );
                assert!(!error.contains('\n'), "{error}");
            }
        }
    }

    /// A pipe or a device may have no end, so it is not read.
    #[cfg(unix)]
    #[test]
    fn a_file_of_a_run_that_is_no_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(RUN_FILE);
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        let error = of_model(folder.path()).expect_err("a device").to_string();
        let expected = format!(
            "{}: not a regular file; set the metrics with --metrics",
            path.display()
        );
        assert_eq!(error, expected);
    }
}
