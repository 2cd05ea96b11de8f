//! Backends on the device that the environment names.

use burn::tensor::backend::Backend;
use clap::ValueEnum;
use transformer_program::{BackendChoice, BackendError, BackendTask, Target, run_on};

/// Starts a backend, and no more.
struct Start;

impl BackendTask for Start {
    type Output = ();

    fn run<B: Backend>(self, _: B::Device) {}
}

/// Every backend on the device that `TRANSFORMER_DEVICE` names, or on its first device where it has none of that name.
///
/// # Panics
/// When no backend has a device of that name.
pub fn every_backend() -> Vec<Target<'static>> {
    let backends = BackendChoice::value_variants().iter();
    let targets = backends.map(|&backend| match run_on(backend, Start) {
        Err(BackendError::Device { .. }) => backend.on(Some("0")),
        _ => backend.on(None),
    });
    let targets: Vec<_> = targets.collect();
    let has_named = targets.iter().any(|target| target.device.is_none());
    assert!(has_named, "no backend has the device of TRANSFORMER_DEVICE");
    targets
}
