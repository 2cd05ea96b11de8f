//! The program `transformer` without its `main`, shared with its tests and benches: its command line, the choice of a
//! backend at run time, the allocator and the run file. The libraries to build on are `transformer-core` and
//! `transformer-train`.

// The commands name the crate as the tests do.
extern crate self as transformer_program;

mod allocator;
mod backend;
mod command_line;
mod commands;
#[cfg(feature = "count-memory")]
pub mod memory;
pub mod run_file;
mod threads;

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use backend::{BackendChoice, BackendError, BackendTask, Precision, run_at, run_on};
pub use command_line::{CommandLine, as_program, run_program};
pub use threads::compute_on_this_thread;
use transformer_train::printable;

// So that tests find the instances.
#[doc(hidden)]
pub use transformer_instances as instances;

/// Whether this process prints notes.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard error, in one piece, so that a line of another process cannot come into it, and
/// [printable], whatever it quotes. A closed pipe is no error, as in `transformer … 2>&1 | head`.
pub fn note(line: impl Display) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        let line = line.to_string();
        let _ = io::stderr().write_all(format!("{}\n", printable(&line)).as_bytes());
    }
}

/// Lets this process print no more notes: of several that do the same, one prints them.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// The bytes of a regular file. A pipe would be waited for, and a device may have no end.
///
/// # Errors
/// When it is of another kind, or cannot be read.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// The README's program, compiled as a test.
#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The guide's programs, compiled as a test.
#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/pytorch.md")]
struct PytorchGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/backends.md")]
struct BackendsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/own-model.md")]
struct OwnModelGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/checkpoints.md")]
struct CheckpointsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/translation.md")]
struct TranslationGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/metrics.md")]
struct MetricsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/fine-tuning.md")]
struct FineTuningGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/tokenizers.md")]
struct TokenizersGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/pretrained.md")]
struct PretrainedGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/watching.md")]
struct WatchingGuide;

#[cfg(all(doctest, feature = "flex", feature = "mpi"))]
#[doc = include_str!("../docs/guide/several-machines.md")]
struct SeveralMachinesGuide;
