//! What the examples, tests and benches share: the choice of a backend, Ctrl-C, exit codes.

mod backend;
mod cli;

pub use backend::{BackendChoice, BackendTask, run_on};
pub use cli::{Common, finish, stop_on_ctrl_c};

/// Keeps the pages of freed tensors for the next ones: glibc's allocator returns large blocks to the
/// system at once, and half of a training step on the CPU is then spent on page faults.
#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The README's snippet, compiled and run as a test.
#[cfg(all(doctest, feature = "ndarray"))]
#[doc = include_str!("../README.md")]
struct Readme;
