//! The process: its memory, its threads, its standard error, and the files that it may read.

#[cfg(feature = "count-memory")]
pub mod memory;
mod threads;

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use threads::compute_on_this_thread;
use transformer_train::progress::printable;

/// The allocator of every program of this package. With the feature `count-memory`, `memory` has one that counts.
#[cfg(not(feature = "count-memory"))]
#[global_allocator]
static ALLOCATOR: transformer_alloc::PageKeeper = transformer_alloc::PageKeeper;

/// Whether this process prints notes.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard error, in one write, so that a line of another process cannot interrupt it. The line is
/// made [printable] in case it quotes control characters. A closed pipe is not an error, as in `transformer … 2>&1 |
/// head`.
pub fn note(line: impl Display) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        let line = line.to_string();
        let _ = io::stderr().write_all(format!("{}\n", printable(&line)).as_bytes());
    }
}

/// Makes this process print no more notes. Of several processes that do the same, only one prints notes.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// The bytes of a regular file. A pipe could block the program, and a device may have no end.
///
/// # Errors
/// When it is not a regular file, or cannot be read.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::other("not a regular file")),
    }
}
