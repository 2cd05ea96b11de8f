//! Processes that mpirun starts, over the loopback.

use std::path::Path;
use std::process::Command;

use transformer_train::progress::RunLog;

use crate::support::{folder, run, stderr, succeeds, train_for};

/// A command in this many processes, with one thread each.
fn mpirun(size: usize, command: &Command) -> Command {
    let mut all = Command::new("mpirun");
    all.args([
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
    ]);
    all.args(["-np", &size.to_string()]);
    all.arg(command.get_program()).args(command.get_args());
    all.env("RAYON_NUM_THREADS", "1");
    all
}

/// 50 updates of two batches, without dropout, and with gradients that are clipped.
fn two_batches(backend: &str, folder: &Path, out: &Path) -> Command {
    let mut command = train_for(50, folder, out);
    command.args(["--backend", backend, "--batches-per-update", "2"]);
    // At this rate the rounding of a sum does not grow.
    for setting in [
        "training.peak_rate=0.001",
        "training.clip_norm=0.5",
        "validation.every=10",
        "model.dropout=0",
        "model.attention_dropout=0",
        "model.activation_dropout=0",
    ] {
        command.args(["--set", setting]);
    }
    command
}

/// The losses of training and of validation, of the run in a directory.
fn losses(out: &Path) -> Vec<f64> {
    let log = RunLog::load(out).expect("a log").expect("lines");
    let training = log.points.iter().map(|point| point.loss);
    let validation = log
        .validations
        .iter()
        .map(|validation| validation.valid_loss);
    training.chain(validation).collect()
}

#[test]
fn two_processes_have_the_losses_of_one() {
    let mut backends = vec!["ndarray"];
    backends.extend(cfg!(feature = "flex").then_some("flex"));
    for backend in backends {
        let folder = folder();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        succeeds(&mut two_batches(backend, folder.path(), &one));
        let out = succeeds(&mut mpirun(2, &two_batches(backend, folder.path(), &two)));
        // One of them prints.
        assert_eq!(out.matches("39 training pairs").count(), 1, "{out}");
        assert_eq!(out.matches("done: 50 updates").count(), 1, "{out}");
        let [one, two] = [&one, &two].map(|out| losses(out));
        assert!(one.len() > 10 && one.len() == two.len());
        for (one, two) in one.iter().zip(&two) {
            assert!((one - two).abs() <= 1e-5, "{backend}: {two}, not {one}");
        }
    }
}

#[test]
fn processes_go_on_where_one_was_and_end_where_nothing_is_left() {
    let folder = folder();
    let out = folder.path().join("model");
    succeeds(&mut two_batches("ndarray", folder.path(), &out));
    let mut more = two_batches("ndarray", folder.path(), &out);
    more.args(["--resume", "--set", "training.updates=54"]);
    let said = succeeds(&mut mpirun(2, &more));
    assert!(said.contains("done: 54 updates"), "{said}");
    let said = succeeds(&mut mpirun(2, &more));
    assert!(said.contains("already trained for 54 updates"), "{said}");
}

/// The line of an error that ends two processes.
fn error_of_two(command: &Command) -> String {
    let output = run(&mut mpirun(2, command));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let errors: Vec<_> = err
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{err}");
    errors[0].to_owned()
}

#[test]
fn an_error_of_a_process_ends_all_with_its_rank() {
    let folder = folder();
    let out = folder.path().join("model");
    let error = error_of_two(&train_for(4, folder.path(), &out));
    assert!(error.starts_with("error: rank 0 of 2 ("), "{error}");
    let expected = "`training.batches_per_update` = 1: must be at least 2, the number of processes";
    assert!(error.ends_with(expected), "{error}");

    let mut command = two_batches("ndarray", folder.path(), &out);
    command.args(["--set", "data.hold_out=", "--valid", "nowhere.tsv"]);
    let error = error_of_two(&command);
    assert!(error.contains("): nowhere.tsv: cannot open"), "{error}");
}
