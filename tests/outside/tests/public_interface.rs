//! Layers, models, optimizers, formats and rules of decoding that a user has written.

use std::sync::{Mutex, MutexGuard, PoisonError};

use transformer_instances as _;

mod block;
mod classifier;
mod format;
mod llama;
mod optimizer;
mod relative_positions;
mod rule;

/// For tests that train or draw: dropout is drawn from Burn's generator, of which a process has one.
fn alone() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}
