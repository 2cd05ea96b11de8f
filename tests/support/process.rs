//! Commands that succeed or fail, for the tests of the program and of the examples.

#![allow(dead_code, reason = "each test uses some of these")]

use std::process::{Command, Output, Stdio};

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.expect("the command starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The output of a command that must succeed.
pub fn succeeds(command: &mut Command) -> String {
    let output = run(command);
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out
}

/// The error line of a command that must fail: with exit code 1 and no panic.
pub fn fails(command: &mut Command) -> String {
    let output = run(command);
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{command:?}\n{err}");
    assert!(!err.contains("panicked"), "{command:?}\n{err}");
    let errors: Vec<_> = err
        .lines()
        .filter(|line| line.starts_with("error: ") || line.starts_with("Error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{command:?}\n{err}");
    errors[0].to_owned()
}
