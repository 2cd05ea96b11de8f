//! What the examples, tests and benches share: the choice of a backend, Ctrl-C, exit codes.

mod backend;
mod cli;

pub use backend::{BackendChoice, BackendTask, run_on};
pub use cli::{Common, finish, stop_on_ctrl_c};
