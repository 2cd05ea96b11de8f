//! Our side of benches/peers/run: does one kind of work once per line of standard input, and prints its duration
//! as JSON.

mod decoding;
mod training;
mod translation;
mod turns;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::tensor::backend::Backend;
use burn_autodiff::Autodiff;
use clap::Parser;
use serde::de::DeserializeOwned;
use transformer_core::TransformerConfig;
use transformer_core::nn::ProductPrecision;
use transformer_program::{BackendChoice, BackendTask, run_on};

use self::decoding::Sizes;
use self::training::Training;
use self::translation::TextWork;
use self::turns::Turns;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[derive(Debug, Parser)]
struct Cli {
    /// Backend to run on
    #[arg(long, value_enum, default_value_t)]
    backend: BackendChoice,
    /// The work: `write` (the model with which all systems decode), `greedy`, `beam`, or a training of work.json;
    /// `translate` of translate.json; `train-text` of train-text.json
    #[arg(long)]
    work: String,
    /// Directory with the file that describes the work, and with the model for `greedy` and `beam`
    #[arg(long)]
    directory: PathBuf,
    /// Multiply matrices in bf16, for `train-text`
    #[arg(long)]
    bf16: bool,
    #[command(flatten)]
    translation: translation::Flags,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = transformer_program::compute_on_this_thread()
        .map_err(Box::from)
        .and_then(|()| run_on(cli.backend, cli).map_err(Box::from));
    match result.and_then(|result| result) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl BackendTask for Cli {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        let turns = Turns::new()?;
        match self.work.as_str() {
            "write" => {
                let sizes: Sizes = self.read("work.json")?;
                let config = TransformerConfig::base(sizes.vocab_size);
                Ok(config.init::<B>(1, &device)?.save(&self.directory)?)
            }
            "greedy" | "beam" => {
                let sizes: Sizes = self.read("work.json")?;
                let beam = if self.work == "beam" { sizes.beam } else { 1 };
                sizes.decode::<B>(&self.directory, beam, &device, turns)
            }
            "translate" => {
                let text: TextWork = self.read("translate.json")?;
                text.run::<B>(self.translation, &device, turns)
            }
            "train-text" => {
                let text: training::Text = self.read("train-text.json")?;
                let precision = match self.bf16 {
                    true => ProductPrecision::Bf16,
                    false => ProductPrecision::F32,
                };
                Training::<Autodiff<B>>::of_text(text, precision, &device)?.run(turns)
            }
            training => {
                let sizes: Sizes = self.read("work.json")?;
                let batch = sizes.training.get(training).ok_or("unknown work")?;
                Training::<Autodiff<B>>::of_batch(sizes.vocab_size, batch, &device)?.run(turns)
            }
        }
    }
}

impl Cli {
    /// Reads a description of work from the directory.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        read(&self.directory.join(name))
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let json = fs::read(path).map_err(|error| named(&error))?;
    Ok(serde_json::from_slice(&json).map_err(|error| named(&error))?)
}
