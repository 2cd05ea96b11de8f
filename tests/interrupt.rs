//! Runs that are killed, interrupted, or out of disk lose nothing that they had saved, and share no directory.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use support::{fails, folder, program, run, started, stderr, stdout, succeeds, train, train_for};
use transformer_train::progress::RunLog;
use transformer_train::run::RunRecord;

#[test]
fn a_killed_run_resumes_to_the_model_it_would_have_made() {
    let folder = folder();
    let whole = folder.path().join("whole");
    let command = |out: &Path| {
        let mut command = train_for(30, folder.path(), out);
        // libtorch's products are the same to the bit on one thread only.
        command.env("OMP_NUM_THREADS", "1");
        command.args(["--batches-per-update", "2"]);
        for set in [
            "tokenizer.dropout=0.1",
            "training.ema_decay=0.9",
            "checkpoint.every_updates=3",
            "checkpoint.keep_best=1",
            "checkpoint.average_last=2",
        ] {
            command.args(["--set", set]);
        }
        command
    };
    succeeds(&mut command(&whole));

    let killed = folder.path().join("killed");
    for wait in [300, 600, 900, 1200] {
        let mut child = command(&killed)
            .arg("--resume")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        thread::sleep(Duration::from_millis(wait));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().expect("the program ends");
    }
    succeeds(command(&killed).arg("--resume"));
    let [expected, found] = [&whole, &killed].map(|out| files_of(out));
    assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
    // Without the files that have seconds, and Adam's moments, whose order is random.
    let varies = |path: &Path| {
        ["run.json", "log.jsonl", "optimizer.mpk"]
            .iter()
            .any(|name| path.ends_with(name))
    };
    for (path, content) in expected.iter().filter(|(path, _)| !varies(path)) {
        assert!(found[path] == *content, "{} differs", path.display());
    }

    // Its log has each update once, and each validation.
    let log = RunLog::load(&killed).expect("a log").expect("lines");
    let mut updates = 0;
    for point in &log.points {
        assert_eq!(point.update, updates + point.updates);
        updates = point.update;
    }
    assert_eq!(updates, 30);
    let validated = log.validations.iter().map(|validation| validation.update);
    assert!(validated.eq((2..=30).step_by(2)));
}

/// The files of a directory, and of those below it, by their paths in it.
fn files_of(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut below = vec![directory.to_owned()];
    while let Some(folder) = below.pop() {
        for entry in fs::read_dir(folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                below.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).expect("a path in it");
            files.insert(name.to_owned(), fs::read(&path).expect("a file"));
        }
    }
    files
}

/// A run that does not end by itself.
#[cfg(unix)]
fn endless(folder: &Path, out: &Path) -> Command {
    let mut command = train_for(1_000_000, folder, out);
    command.stdin(Stdio::null());
    command
}

/// Waits until a run has made updates, which it reports line by line.
#[cfg(unix)]
fn wait_for_updates(child: &mut Child) {
    use std::io::{BufRead, BufReader};
    let lines = BufReader::new(child.stdout.as_mut().expect("its output")).lines();
    let mut lines = lines.map(|line| line.expect("a line"));
    assert!(lines.any(|line| line.starts_with("update 2 ")));
}

#[cfg(unix)]
fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args(["-s", signal, &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

/// Interrupts a process, as Ctrl-C does.
#[cfg(unix)]
fn interrupt(child: &Child) {
    send("INT", child);
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_a_checkpoint_to_resume_from() {
    a_signal_keeps_a_checkpoint("INT", 130, "press Ctrl-C again to stop at once");
}

#[cfg(unix)]
#[test]
fn sigterm_keeps_a_checkpoint_to_resume_from() {
    a_signal_keeps_a_checkpoint("TERM", 143, "send SIGTERM again to stop at once");
}

#[cfg(unix)]
fn a_signal_keeps_a_checkpoint(signal: &str, exit_code: i32, answer: &str) {
    let folder = folder();
    let out = folder.path().join("model");
    let mut child = started(&mut endless(folder.path(), &out));
    wait_for_updates(&mut child);
    send(signal, &child);
    let output = child.wait_with_output().expect("the program ends");
    let (printed, err) = (stdout(&output), stderr(&output));
    // The exit code stops `transformer train … && …` from going on as if the run had ended.
    assert_eq!(output.status.code(), Some(exit_code), "{err}");
    let answer = format!("stopping after this update; {answer}");
    assert!(err.lines().any(|line| line == answer), "{err}");
    assert!(!err.contains("error"), "{err}");
    let made = printed
        .lines()
        .find_map(|line| line.strip_prefix("interrupted after "))
        .and_then(|line| line.split(' ').next())
        .unwrap_or_else(|| panic!("{printed}"));
    // The checkpoint of the last update, not only that of the last validation.
    let last = out.join(format!("checkpoints/update-{made:0>8}"));
    assert!(last.join("model.safetensors").exists(), "{printed}");
    let checkpoints = fs::read_dir(out.join("checkpoints")).expect("checkpoints");
    assert!((1..=2).contains(&checkpoints.count()));
}

/// The shell ignores the signal as `nohup` does, and the program begins with that.
#[cfg(unix)]
#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    use std::io::{BufRead, BufReader};

    let folder = folder();
    let command = endless(folder.path(), &folder.path().join("model"));
    let mut shell = Command::new("bash");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "bash"]);
    shell.arg(command.get_program()).args(command.get_args());
    let mut child = started(shell.stdin(Stdio::null()));
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut lines = lines.map(|line| line.expect("a line"));
    assert!(lines.any(|line| line.starts_with("update 2 ")));
    send("HUP", &child);
    // More than it can have printed before.
    assert_eq!(lines.by_ref().take(10).count(), 10);
    interrupt(&child);
    assert!(lines.any(|line| line.starts_with("interrupted after ")));
    assert_eq!(child.wait().expect("the program ends").code(), Some(130));
}

#[cfg(unix)]
#[test]
fn a_second_run_in_a_directory_is_refused_while_the_first_lasts() {
    let folder = folder();
    let out = folder.path().join("model");
    let mut child = started(&mut endless(folder.path(), &out));
    wait_for_updates(&mut child);
    let error = fails(train(folder.path(), &out).arg("--resume"));
    let name = out.display();
    assert_eq!(
        error,
        format!(
            "error: {name} is in use by another training run; stop that run first, or choose another --out"
        )
    );
    interrupt(&child);
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
}

/// The other files of the run are not in a directory that it would make again.
#[cfg(unix)]
#[test]
fn a_run_whose_directory_is_renamed_says_where_its_checkpoints_are() {
    let folder = folder();
    let [out, renamed] = ["model", "renamed"].map(|name| folder.path().join(name));
    let mut child = started(&mut endless(folder.path(), &out));
    wait_for_updates(&mut child);
    // A checkpoint can be removed while the record is read.
    while !matches!(RunRecord::load(&out), Ok(Some(_))) {}
    fs::rename(&out, &renamed).expect("renamed");
    let output = child.wait_with_output().expect("the program ends");
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let errors: Vec<_> = err
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    let [error] = errors[..] else { panic!("{err}") };
    let start = format!("error: {}/run.lock: is missing", out.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(error.contains("; no checkpoint after update "), "{error}");
    assert!(!out.exists());
    if cfg!(target_os = "linux") {
        let renamed = renamed.canonicalize().expect("a directory");
        let end = format!("the run can be resumed in {}", renamed.display());
        assert!(error.ends_with(&end), "{error}");
    }
    let newest = RunRecord::load(&renamed).expect("a record").expect("a run");
    let updates = format!("{}", newest.updates + 1);
    succeeds(
        program("train")
            .args(["--resume", "--updates", &updates, "--out"])
            .arg(&renamed),
    );
}

#[cfg(unix)]
#[test]
fn a_second_ctrl_c_ends_the_program_at_once() {
    a_second_signal_ends_the_program("INT", 130);
}

#[cfg(unix)]
#[test]
fn a_second_sigterm_ends_the_program_at_once() {
    a_second_signal_ends_the_program("TERM", 143);
}

/// The second one is sent as soon as the first is answered. A run whose current update has ended by then
/// has ended, too: it is tried again.
#[cfg(unix)]
fn a_second_signal_ends_the_program(signal: &str, exit_code: i32) {
    use std::io::{self, BufRead, BufReader};

    for _ in 0..20 {
        let folder = folder();
        let out = folder.path().join("model");
        let mut command = endless(folder.path(), &out);
        // Long updates.
        command.args(["--batches-per-update", "200"]);
        let mut child = started(&mut command);
        wait_for_updates(&mut child);
        send(signal, &child);
        let mut errors = BufReader::new(child.stderr.take().expect("its errors")).lines();
        let mut errors = errors.by_ref().map(|line| line.expect("a line"));
        assert!(errors.any(|line| line.starts_with("stopping after this update")));
        send(signal, &child);
        let printed = io::read_to_string(child.stdout.take().expect("its output"));
        let code = child.wait().expect("the program ends").code();
        assert_eq!(code, Some(exit_code));
        if !printed.expect("text").contains("interrupted after ") {
            return;
        }
    }
    panic!("no run was interrupted twice");
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_one_line_and_leaves_no_half_written_file() {
    let folder = folder();
    let out = folder.path().join("model");
    let command = train(folder.path(), &out);
    // Without the signal, writing past the limit, of 1 MiB, is an error, as on a full disk: text fits, the
    // model does not.
    let output = run(Command::new("bash")
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -f 1024; exec \"$@\"")
        .arg("bash")
        .arg(command.get_program())
        .args(command.get_args()));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let expected = format!(
        "error: {}: File too large (os error 27)",
        out.join("model.safetensors").display()
    );
    assert_eq!(err.lines().last(), Some(expected.as_str()), "{err}");
    assert!(!out.join("model.safetensors").exists());
    let left = fs::read_dir(out.join("checkpoints")).expect("the folder");
    assert_eq!(left.count(), 0);
}
