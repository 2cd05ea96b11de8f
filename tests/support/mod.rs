//! Parts shared by the tests of the program: starting it, and a tiny model to run.

#![allow(dead_code, unused_imports, reason = "each test uses some of these")]

mod fixtures;
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

pub use fixtures::{change_json, copied, directory, fixture, mbart_with_language_last, read_json};
pub use process::{fails, run, stderr, stdout, succeeds};

/// The program `transformer` with a subcommand.
pub fn program(subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transformer"));
    command.arg(subcommand);
    // Without it, Vulkan's drivers complain on standard error.
    command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    command
}

/// A subcommand that runs the model in a directory.
pub fn with_model(subcommand: &str, model: &Path) -> Command {
    let mut command = program(subcommand);
    command.arg("--model").arg(model);
    command
}

/// Runs a command on that standard input.
pub fn run_on_input(command: &mut Command, input: &[u8]) -> Output {
    use std::io::Write;
    let mut child = started(command.stdin(Stdio::piped()));
    let mut pipe = child.stdin.take().expect("standard input");
    pipe.write_all(input).expect("written");
    drop(pipe);
    child.wait_with_output().expect("the program ends")
}

/// Starts a command whose output can be read later.
pub fn started(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// `transformer train` on a small corpus, for a few updates.
pub fn train(folder: &Path, out: &Path) -> Command {
    train_for(4, folder, out)
}

pub fn train_for(updates: usize, folder: &Path, out: &Path) -> Command {
    let mut command = program("train");
    command.args(["--preset", "tiny", "--vocab-size", "300"]);
    command.args(["--hold-out", "10", "--batch-tokens", "200", "--warmup", "4"]);
    command
        .args(["--validate-every", "2", "--updates"])
        .arg(updates.to_string());
    command
        .arg("--data")
        .arg(corpus(folder))
        .arg("--out")
        .arg(out);
    command
}

/// A tiny model in a folder of its own.
pub fn trained() -> (TempDir, PathBuf) {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    (folder, model)
}

/// 49 pairs of 49 distinct sources.
pub fn corpus(folder: &Path) -> PathBuf {
    let path = folder.join("corpus.tsv");
    let numbers = ["one", "two", "three", "four", "five", "six", "seven"];
    let nombres = ["un", "deux", "trois", "quatre", "cinq", "six", "sept"];
    let mut text = String::new();
    for a in 0..7 {
        for b in 0..7 {
            text += &format!(
                "{} and {}\t{} et {}\n",
                numbers[a], numbers[b], nombres[a], nombres[b]
            );
        }
    }
    fs::write(&path, text).expect("a corpus can be written");
    path
}

pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A file of that text in a folder.
pub fn file(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file can be written");
    path
}

/// The number in the line of a report that ends so; 0 without one.
pub fn count(report: &str, end: &str) -> u64 {
    let line = report.lines().find(|line| line.ends_with(end));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.map_or(0, |number| number.parse().expect("a number"))
}

/// Every text of a picture.
pub fn labels(svg: &str) -> Vec<&str> {
    svg.split("<text ")
        .skip(1)
        .filter_map(|text| text.split_once('>')?.1.split_once("</text>"))
        .map(|(label, _)| label.trim())
        .collect()
}
