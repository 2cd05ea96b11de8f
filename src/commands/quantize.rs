//! `transformer quantize`

use std::path::PathBuf;

use clap::Args;
use transformer_core::Tokenizers;
use transformer_core::formats::quantize;

use super::{Result, check_empty, directory_to_write, model_directory, print};

const EXAMPLES: &str = "\
Examples:
  transformer quantize --model model --out model-int8
  echo \"Where are you going?\" | transformer translate --model model-int8

  What it costs:
    transformer evaluate --model model --data model/valid.tsv
    transformer evaluate --model model-int8 --data model/valid.tsv";

/// Writes a model with its matrices in 8-bit integers: for translation, in a quarter of the size.
///
/// On the backends ndarray and flex, `translate`, `evaluate` and `score` multiply the integers; the others compute with
/// the numbers that they stand for. The model may be ours or a pretrained one; its tokenizers and options of decoding come
/// along. To train further, keep the model itself: the directory has only its rounded weights.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Quantize {
    /// Directory of a trained model
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Directory to write, new or empty
    #[arg(long, value_name = "DIR", value_parser = directory_to_write())]
    out: PathBuf,
}

impl Quantize {
    /// Runs the command.
    pub fn run(self) -> Result {
        model_directory::check(&self.model, None)?;
        check_empty(&self.out)?;
        let directory = model_directory::open(&self.model)?;
        // They are copied as they are.
        Tokenizers::of(directory.files())?;
        quantize(&directory, &self.out)?;
        print(&format!("model: {}", self.out.display()))
    }
}
