//! Our models against what PyTorch computed: outputs, loss, gradients, decoding and training.
//!
//! `cargo run --release --example parity -- tests/fixtures/*`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::tensor::backend::Backend;
use clap::Parser;
use transformer::parity::{Fixture, WeightsFile};
use transformer::{BackendTask, Common, finish, run_on};

/// Compares our models with what PyTorch computed, folder by folder. Exits 1 when an error is beyond
/// its bound. The folders are those of scripts/make-pytorch-fixture.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    common: Common,
    /// File that weights are read from
    #[arg(long, value_enum, default_value = "safetensors")]
    weights: WeightsFile,
    /// Write the weights to folders in this directory too, as PyTorch state dicts, for
    /// tests/pytorch/check_export.py
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Folders with config.json, weights and io.safetensors
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish(run_on(cli.common.backend, cli))
}

impl BackendTask for Cli {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let mut failed = 0;
        for folder in &self.folders {
            let passed = self.compare::<B>(folder, &device).unwrap_or_else(|error| {
                eprintln!("{error}");
                false
            });
            failed += usize::from(!passed);
        }
        match failed {
            0 => Ok(()),
            _ => Err(format!("{failed} of {} folders failed", self.folders.len()).into()),
        }
    }
}

impl Cli {
    /// Whether a folder's errors are within their bounds.
    fn compare<B: Backend>(
        &self,
        folder: &Path,
        device: &B::Device,
    ) -> Result<bool, Box<dyn Error>> {
        let fixture = Fixture::open(folder)?;
        let report = fixture.compare::<B>(self.weights, device)?;
        println!("{report}");
        if let Some(out) = &self.export {
            fixture.export::<B>(self.weights, out, device)?;
        }
        Ok(report.passed())
    }
}
