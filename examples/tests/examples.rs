//! Every example runs, at a tiny size, as a user would run it, and ends with an error when it fails.
//!
//! `cargo test` has built the examples beside this test.

#[path = "../../tests/support/process.rs"]
mod process;

use std::process::Command;

use process::{fails, run, stdout, succeeds};

fn example(name: &str) -> Command {
    let this = std::env::current_exe().expect("a running test has a path");
    let profile = this.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let path = profile.join("examples").join(name);
    assert!(path.exists(), "{} is not built", path.display());
    Command::new(path)
}

#[test]
fn smoke_test_passes_all_checks() {
    let out = succeeds(&mut example("smoke_test"));
    assert!(out.contains("Parameters   : 59463680 ✓"), "{out}");
    assert!(out.ends_with("All checks passed.\n"), "{out}");
}

#[test]
fn every_example_has_help_and_a_seed() {
    for name in [
        "smoke_test",
        "copy_task",
        "toy_translation",
        "language_model",
        "own_model",
        "bare_loop",
        #[cfg(feature = "text")]
        "translate",
    ] {
        let out = succeeds(example(name).arg("--help"));
        assert!(out.contains("--seed"), "{out}");
    }
}

#[test]
fn annotated_trains_and_decodes() {
    let out = succeeds(example("annotated").args(["--updates", "1"]));
    let copies = out.strip_prefix("exact copies: ").expect("a count");
    assert!(copies.ends_with(" of 100\n"), "{out}");
}

#[test]
fn learn_prints_a_listing_and_names_all() {
    let names = succeeds(&mut example("learn"));
    assert!(names.contains("four_by_four\n"), "{names}");
    let out = succeeds(example("learn").arg("one_query"));
    assert!(out.contains("weight 7.39 / 16.78 = 0.44"), "{out}");
    let error = fails(example("learn").arg("nosuch"));
    assert!(error.contains("nosuch: not a listing"), "{error}");
}

#[test]
fn copy_task_counts_exact_copies_and_fails_below_its_bound() {
    let mut command = example("copy_task");
    command.args(["--d-model", "8", "--batch-tokens", "64", "--updates", "6"]);
    let out = stdout(&run(&mut command));
    assert!(out.contains("exact match: ") && out.contains("/1000"), "{out}");
    let error = fails(&mut command);
    assert!(error.contains("fewer than 990"), "{error}");
}

#[test]
fn copy_task_refuses_flags_that_make_too_few_sequences() {
    for (flags, expected) in [
        (["--min-length", "9", "--max-length", "8"], "--min-length 9 is above --max-length 8"),
        (["--symbols", "2", "--min-length", "1"], "too few sequences"),
    ] {
        let error = fails(example("copy_task").args(flags));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn toy_translation_prints_source_prediction_and_target() {
    for norm in ["pre", "post"] {
        let out = succeeds(example("toy_translation").args(["--norm", norm]));
        assert!(out.contains("prediction: aufmerksamkeit hilft modellen fokus"), "{out}");
        assert!(out.contains("exact: 6/6"), "{out}");
    }
}

#[test]
fn language_model_learns_and_prints_samples() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data.tsv");
    let numbers = ["one", "two", "three", "four", "five", "six", "seven"];
    let pairs = numbers.iter().flat_map(|a| numbers.map(|b| format!("I see {a} and {b}.\tx\n")));
    std::fs::write(&data, pairs.collect::<String>()).expect("a file");
    let mut command = example("language_model");
    command.args(["--updates", "40", "--d-model", "16", "--batch-tokens", "256"]);
    command.args(["--hold-out", "9", "--data"]).arg(&data);
    let out = succeeds(&mut command);
    let perplexities: Vec<f64> = out
        .lines()
        .filter(|line| line.ends_with(" per character"))
        .filter_map(|line| line.split("perplexity ").nth(1)?.split(' ').next())
        .map(|number| number.parse().expect("a number"))
        .collect();
    assert_eq!(perplexities.len(), 2, "{out}");
    assert!(perplexities.is_sorted_by(|a, b| a > b), "{perplexities:?}");
    let samples = out.lines().filter(|line| line.starts_with("I "));
    assert_eq!(samples.count(), 5, "{out}");
}

#[test]
fn own_model_is_trained_and_decoded_and_fails_below_its_bound() {
    let mut command = example("own_model");
    command.args(["--updates", "8", "--batch-tokens", "128", "--at-least"]);
    let error = fails(command.arg("200"));
    assert!(error.contains("fewer than 200"), "{error}");
    let mut command = example("own_model");
    command.args(["--updates", "8", "--batch-tokens", "128", "--at-least", "0"]);
    let out = succeeds(&mut command);
    assert!(out.contains("backwards is ["), "{out}");
    assert!(out.contains("without an error: ") && out.contains("of 200"), "{out}");
}

#[test]
fn bare_loop_learns() {
    let mut command = example("bare_loop");
    command.args(["--epochs", "2", "--d-model", "16", "--batch-tokens", "256"]);
    let out = succeeds(&mut command);
    let losses: Vec<f64> =
        out.lines().filter_map(|line| line.split("loss ").nth(1)?.parse().ok()).collect();
    assert!(losses.len() > 2, "{out}");
    assert!(losses[losses.len() - 1] < losses[0], "{out}");
}

#[cfg(feature = "text")]
#[test]
fn translate_goes_from_two_text_files_to_a_translation() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let numbers = ["one", "two", "three", "four", "five"];
    let nombres = ["un", "deux", "trois", "quatre", "cinq"];
    let [source, target] =
        [("en", numbers, "and"), ("fr", nombres, "et")].map(|(name, words, and)| {
            let pairs = words.iter().flat_map(|a| words.map(|b| format!("{a} {and} {b}\n")));
            let path = folder.path().join(name);
            std::fs::write(&path, pairs.collect::<String>()).expect("a text file");
            path
        });
    let model = folder.path().join("model");
    let mut command = example("translate");
    command.args(["--updates", "2", "--vocab-size", "280"]);
    command.arg(source).arg(target).arg(&model).arg("two and one");
    let out = succeeds(&mut command);
    assert!(out.contains("validation"), "{out}");
    assert!(model.join("model.safetensors").exists());
    // It does not write over a model.
    let error = fails(&mut command);
    assert!(error.contains("already holds a model"), "{error}");
}
