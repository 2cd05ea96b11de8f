//! The program `transformer`: trains, runs and measures translation models.
//!
//! Exit codes: 0; 1 with the error in one line; 2 for flags that are unknown, malformed or in conflict; 130
//! or 143 where Ctrl-C or SIGTERM ended a training run: with a checkpoint, or at once where it came twice.

use std::process::ExitCode;

fn main() -> ExitCode {
    transformer_program::run_program()
}
