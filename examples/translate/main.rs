//! Learns to translate from real sentence pairs, then translates and is measured.
//!
//! `cargo run --release --example translate -- train --out model`

mod decoding;
mod evaluate;
mod lines;
mod train;
mod translate;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use transformer::{Common, finish, run_at, run_on};
use transformer_train::{Corpus, CorpusError};

use evaluate::Evaluate;
use train::Train;
use translate::Translate;

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
    Train(Train),
    Translate(Translate),
    Evaluate(Evaluate),
}

fn main() -> ExitCode {
    let Cli { common, command } = Cli::parse();
    let Common { backend, seed } = common;
    finish(match command {
        Command::Train(train) => run_on(backend, train.seeded(seed)),
        Command::Translate(mut translate) => {
            translate.decoding.seed = seed;
            run_at(backend, translate.inference.precision, translate)
        }
        Command::Evaluate(mut evaluate) => {
            evaluate.decoding.seed = seed;
            run_at(backend, evaluate.inference.precision, evaluate)
        }
    })
}

/// Refuses to write over what is read.
fn refuse_overwriting(read: &[PathBuf], written: &Path) -> Result<(), String> {
    let Ok(written) = written.canonicalize() else {
        // Not there yet.
        return Ok(());
    };
    let is_written = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| path == written);
    match read.iter().find(is_written) {
        Some(path) => Err(format!(
            "{}: is read, and would be overwritten",
            path.display()
        )),
        None => Ok(()),
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
