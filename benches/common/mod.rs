//! What the criterion benches share.

use clap::ValueEnum;
use transformer_program::{BackendChoice, BackendError};

/// Runs on every backend that is compiled in; one that cannot start says why.
pub fn on_every_backend(mut run: impl FnMut(BackendChoice) -> Result<(), BackendError>) {
    for &backend in BackendChoice::value_variants() {
        if let Err(error) = run(backend) {
            println!("{backend}: {error}");
        }
    }
}
