//! Learns to translate from real sentence pairs, then translates and is measured.
//!
//! `cargo run --release --example translate -- train --out model`

mod evaluate;
mod train;
mod translate;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use burn::tensor::backend::Backend;
use clap::{Parser, Subcommand};
use transformer::{BackendTask, Common, finish, run_on};
use transformer_train::{Corpus, CorpusError};

/// Trains a translation model on parallel text, translates with it, and measures it.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Train),
    Translate(translate::Translate),
    Evaluate(evaluate::Evaluate),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish(run_on(cli.common.backend, cli))
}

impl BackendTask for Cli {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        match self.command {
            Command::Train(train) => train.run::<B>(self.common.seed, &device),
            Command::Translate(translate) => translate.run::<B>(&device),
            Command::Evaluate(evaluate) => evaluate.run::<B>(&device),
        }
    }
}

/// All pairs of several files of `source<TAB>target` lines.
fn read_corpora(paths: &[PathBuf]) -> Result<Corpus, CorpusError> {
    let mut corpus = Corpus::default();
    for path in paths {
        corpus.extend(Corpus::from_tsv(path)?);
    }
    Ok(corpus)
}
