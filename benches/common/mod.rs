//! Code shared by the criterion benches.

use clap::ValueEnum;
use transformer_program::{BackendChoice, BackendError};

/// Runs on every compiled backend; prints the error of a backend that cannot start.
pub fn on_every_backend(mut run: impl FnMut(BackendChoice) -> Result<(), BackendError>) {
    for &backend in BackendChoice::value_variants() {
        if let Err(error) = run(backend) {
            println!("{backend}: {error}");
        }
    }
}
