//! Flags and habits that every example has.

use std::fmt::Display;
use std::process::ExitCode;

use burn::train::Interrupter;

use crate::backend::{BackendChoice, BackendError, Precision};

/// Flags of every example.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    /// Backend to run on, among those compiled in (Cargo features ndarray, flex, wgpu, tch)
    #[arg(long, global = true, value_enum, default_value_t)]
    pub backend: BackendChoice,
    /// Seed of everything random: weights, data, batches, dropout
    #[arg(long, global = true, default_value_t = 0)]
    pub seed: u64,
}

/// Flags of programs that only run a model.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Inference {
    /// What to compute with: 16 bits need half the memory, and are less exact
    #[arg(long, value_enum, default_value_t)]
    pub precision: Precision,
}

/// Lets Ctrl-C end a training run after the update at hand; a second one ends the program.
pub fn stop_on_ctrl_c(interrupter: &Interrupter) {
    let interrupter = interrupter.clone();
    let handler = move || {
        if interrupter.should_stop() {
            std::process::exit(130);
        }
        eprintln!("stopping after this update; press Ctrl-C again to leave at once");
        interrupter.stop(Some("Ctrl-C"));
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("warning: Ctrl-C will end the program at once: {error}");
    }
}

/// The exit code of a program: 0, or 1 with the error in one line.
pub fn finish<E: Display>(result: Result<Result<(), E>, BackendError>) -> ExitCode {
    let error = match result {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
