//! The fuzzer's own output, apart from that of the program under test, which nobody reads.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

static OUT: OnceLock<Mutex<File>> = OnceLock::new();

/// Keeps standard output for [`say`]. Commands read an empty standard input from here on, and print to nowhere.
pub fn take_over() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let out = rustix::io::dup(std::io::stdout())?;
        OUT.get_or_init(|| Mutex::new(File::from(out)));
        let nowhere = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nowhere)?;
        rustix::stdio::dup2_stdout(&nowhere)?;
    }
    Ok(())
}

/// Prints a line.
pub fn say(line: impl Display) {
    match OUT.get() {
        Some(out) => {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            // A closed pipe is no error.
            let _ = writeln!(out, "{line}");
        }
        None => println!("{line}"),
    }
}
