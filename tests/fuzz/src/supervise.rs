//! A process that starts this program once more and waits for it, so that an input which ends the process is known,
//! too: one that overflows the stack, or aborts.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use crate::guard::report;

/// Tells the process that reads inputs its folder.
const FOLDER: &str = "TRANSFORMER_FUZZ_FOLDER";
/// The file of the input that is read, in that folder.
const CURRENT: &str = "current";
/// The standard error of the program under test.
const NOISE: &str = "stderr";

/// The folder for files, in the process that reads inputs: in memory where the system has such a place.
pub fn folder() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
}

/// The file of the input that is read.
pub fn current() -> Option<PathBuf> {
    folder().map(|folder| folder.join(CURRENT))
}

/// Starts the process that reads inputs, and waits for its end.
pub fn start() -> io::Result<ExitCode> {
    let memory = PathBuf::from("/dev/shm");
    let place = match memory.is_dir() {
        true => memory,
        false => env::temp_dir(),
    };
    let folder = tempfile::Builder::new()
        .prefix("transformer-fuzz-")
        .tempdir_in(place)?;
    let noise = folder.path().join(NOISE);
    let status = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(FOLDER, folder.path())
        // Backtraces of errors would only take time.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stderr(File::create(&noise)?)
        .status()?;
    match status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        // The process has reported the failure itself.
        Some(1 | 2) => Ok(ExitCode::FAILURE),
        _ => {
            let printed = fs::read(&noise).unwrap_or_default();
            let printed = String::from_utf8_lossy(&printed);
            let last: Vec<&str> = printed.lines().rev().take(3).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join(" ");
            let problem = format!("the process ended ({status}): {last}");
            let current = fs::read(folder.path().join(CURRENT)).unwrap_or_default();
            let end = current.iter().position(|&byte| byte == b'\n');
            match end {
                Some(end) => {
                    let target = String::from_utf8_lossy(&current[..end]);
                    report(&target, &current[end + 1..], &problem);
                }
                None => println!("{problem}"),
            }
            Ok(ExitCode::FAILURE)
        }
    }
}
