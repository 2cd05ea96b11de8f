//! The program `parity`.
//!
//! Exit codes: 0; 1 when an error is beyond its bound, or a file cannot be read; 2 for flags that are malformed.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::tensor::backend::Backend;
use clap::Parser;
use parity::{Fixture, Pretrained, Report, WeightsFile};
use transformer_program::{BackendChoice, BackendTask, as_program, note, run_on};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const EXAMPLES: &str = "\
Examples:
  cargo run --release -p parity -- tests/fixtures/torch-nn tests/fixtures/annotated
  scripts/make-pytorch-fixture torch-nn mine --d-model 48 --n-heads 6
  cargo run --release -p parity -- mine

  Directories of pretrained models:
    cargo run --release -p parity -- --pretrained tests/fixtures/pretrained/*/";

/// Compares our models with PyTorch's: outputs, loss, gradients, decoding and training; or, with --pretrained, with
/// Hugging Face's and CTranslate2's: tokens, logits, greedy decoding and beam search.
///
/// Exits 1 when an error is beyond its bound. The folders are those of scripts/make-pytorch-fixture; the directories of
/// --pretrained have, beside a model as Hugging Face saves it, what is computed from it: expected.json and
/// io.safetensors.
#[derive(Debug, Parser)]
#[command(name = "parity", after_help = EXAMPLES)]
struct Parity {
    /// Folders with config.json, weights and io.safetensors
    #[arg(required_unless_present = "pretrained", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Model directories of Hugging Face, with expected.json and io.safetensors, or of CTranslate2 or Marian, with
    /// expected.json
    #[arg(long, num_args = 1.., value_name = "DIR", conflicts_with_all = ["folders", "weights", "export"])]
    pretrained: Vec<PathBuf>,
    /// Text before each text of --pretrained, such as "translate English to French: " for T5, instead of the one in
    /// expected.json
    #[arg(long, value_name = "TEXT", requires = "pretrained")]
    prefix: Option<String>,
    /// File that weights are read from
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "safetensors")]
    weights: WeightsFile,
    /// Write the weights to folders in this directory too, as PyTorch state dicts, for
    /// tests/pytorch/check_export.py
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Backend to run on, of those compiled in (Cargo features ndarray, flex, wgpu, tch, cuda)
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    backend: BackendChoice,
}

fn main() -> ExitCode {
    as_program(|| Parity::parse().run())
}

impl Parity {
    fn run(self) -> Result {
        if let Some(out) = &self.export {
            fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
        }
        run_on(self.backend, self)?
    }

    /// The differences between our model of a folder and PyTorch's.
    fn compare<B: Backend>(&self, folder: &Path, device: &B::Device) -> Result<Report> {
        let fixture = Fixture::open(folder)?;
        let report = fixture.compare::<B>(self.weights, device)?;
        if let Some(out) = &self.export {
            fixture.export::<B>(self.weights, out, device)?;
        }
        Ok(report)
    }

    /// The differences between our model of a directory and Hugging Face's.
    fn compare_pretrained<B: Backend>(
        &self,
        directory: &Path,
        device: &B::Device,
    ) -> Result<Report> {
        let pretrained = match &self.prefix {
            Some(prefix) => Pretrained::open(directory)?.with_prefix(prefix),
            None => Pretrained::open(directory)?,
        };
        match self.backend.multiplies_in_tf32() {
            true => pretrained.in_tf32().compare::<B>(device),
            false => pretrained.compare::<B>(device),
        }
    }
}

impl BackendTask for Parity {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        let folders = self.folders.iter();
        let folders = folders.map(|folder| self.compare::<B>(folder, &device));
        let pretrained = self.pretrained.iter();
        let pretrained =
            pretrained.map(|directory| self.compare_pretrained::<B>(directory, &device));
        let mut failed = 0;
        for report in folders.chain(pretrained) {
            let is_tf32 = self.backend.multiplies_in_tf32();
            let report = report.map(|report| if is_tf32 { report.in_tf32() } else { report });
            let passed = match report {
                Ok(report) => {
                    writeln!(io::stdout(), "{report}")?;
                    report.passed()
                }
                Err(error) => {
                    note(error);
                    false
                }
            };
            failed += usize::from(!passed);
        }
        match failed {
            0 => Ok(()),
            _ => {
                let all = self.folders.len() + self.pretrained.len();
                Err(format!("{failed} of {all} folders failed").into())
            }
        }
    }
}
