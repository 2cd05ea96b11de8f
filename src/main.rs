//! The program `transformer`: trains, runs and evaluates translation models.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | an error, which is printed in one line |
//! | 2 | flags that are unknown, malformed or in conflict |
//! | 130, 143 | Ctrl-C or SIGTERM ended a training run after a checkpoint; a second signal ends it at once |

use std::process::ExitCode;

fn main() -> ExitCode {
    transformer_program::run_program()
}
