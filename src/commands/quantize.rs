//! `transformer quantize`

use std::io;
use std::path::PathBuf;

use clap::Args;
use transformer_core::Tokenizers;
use transformer_core::formats::{ModelError, quantize};

use super::{Result, check_empty, clear, directory_to_write, model_directory, print};

const EXAMPLES: &str = "\
Examples:
  transformer quantize --model model --out model-int8
  echo \"Where are you going?\" | transformer translate --model model-int8

  Measure the loss of quality:
    transformer evaluate --model model --data model/valid.tsv
    transformer evaluate --model model-int8 --data model/valid.tsv";

/// Write a model with its matrices as 8-bit integers, at a quarter of the size.
///
/// On the backends ndarray and flex, `translate`, `generate`, `serve` and `score` compute with the integers by default,
/// and so does `evaluate` when it translates, but not for its loss. Other backends dequantize the weights. The model may be
/// trained by this program or pretrained. Its tokenizers and decoding options are copied. Keep the original model for
/// further training: the output directory has only the rounded weights.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Quantize {
    /// Model directory
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Output directory, new or empty
    #[arg(long, value_name = "DIR", value_parser = directory_to_write())]
    out: PathBuf,
}

impl Quantize {
    /// Runs the command.
    pub fn run(self) -> Result {
        model_directory::check(&self.model, None)?;
        check_empty(&self.out)?;
        let directory = model_directory::open(&self.model)?;
        // The tokenizers are copied unchanged. Loading checks them.
        Tokenizers::of(directory.files())?;
        let is_new = !self.out.exists();
        let written = quantize(&directory, &self.out);
        // Another command may have written its model there since.
        let is_taken = matches!(
            &written,
            Err(ModelError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists
        );
        if written.is_err() && !is_taken {
            // The first error is the one to report.
            let _ = clear(&self.out, is_new);
        }
        written?;
        print(&format!("model: {}", self.out.display()))
    }
}
