//! Backends on the device that the environment names.

use transformer_program::{BackendChoice, BackendError, BackendTask, Precision, run_at};

/// Runs a task on the device that `TRANSFORMER_DEVICE` names, or on the first device of a backend that has none of that
/// name.
///
/// # Errors
/// As [`run_at`].
pub fn run_on_named_device<T: BackendTask + Copy>(
    backend: BackendChoice,
    precision: Precision,
    task: T,
) -> Result<T::Output, BackendError> {
    match run_at(backend, precision, task) {
        Err(BackendError::Device { .. }) => run_at(backend.on(Some("0")), precision, task),
        result => result,
    }
}
