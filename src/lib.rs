//! What the examples, tests and benches share: the choice of a backend, Ctrl-C, exit codes, and the
//! comparison with PyTorch.

mod allocator;
mod backend;
mod cli;
#[cfg(debug_assertions)]
pub mod instances;
pub mod parity;

pub use backend::{BackendChoice, BackendError, BackendTask, Precision, run_at, run_on};
pub use cli::{Common, Inference, finish, stop_on_ctrl_c};

/// The README's snippet, compiled and run as a test.
#[cfg(all(doctest, feature = "ndarray"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The guide's programs, compiled as a test.
#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/pytorch.md")]
struct PytorchGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/backends.md")]
struct BackendsGuide;
