//! `transformer average`

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use transformer_core::Tokenizers;
use transformer_train::run::{AverageError, average_models, newest_checkpoints};

use super::model_directory::{self, no_model};
use super::{Result, check_directory, counted, directory_to_write, print};

const EXAMPLES: &str = "\
Examples:
  Average the last five checkpoints of a run that keeps five:
    transformer train --parallel train.en train.fr --out model --keep-checkpoints 5
    transformer average --model model --last 5 --out averaged
    transformer evaluate --model averaged --data model/valid.tsv

  Average model or checkpoint directories with the same configuration:
    transformer average --model model model/checkpoints/update-00005000 --out averaged";

/// Average the weights of checkpoints into one model, as in the paper (§6.1).
///
/// The paper averages the last 5 checkpoints of its base model and the last 20 of its big model. All models must have
/// the same configuration and the same tokenizer. The averaged model keeps both.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Average {
    /// With --last, the directory of a training run; otherwise, two or more model or checkpoint directories
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    model: Vec<PathBuf>,
    /// Average the last N checkpoints of the run
    #[arg(long, value_name = "N")]
    last: Option<NonZeroUsize>,
    /// Output directory for the averaged model
    #[arg(long, value_name = "DIR", value_parser = directory_to_write())]
    out: PathBuf,
}

impl Average {
    /// Runs the command.
    pub fn run(self) -> Result {
        let models = self.models()?;
        check_directory(&self.out)?;
        // Tokenizers are copied unchanged. All models that have tokenizers have the same ones.
        if let Some(model) = models
            .iter()
            .find(|model| model_directory::has_tokenizers(model))
        {
            Tokenizers::load(model)?;
        }
        average_models(&models, &self.out).map_err(average_error)?;
        let mut text = String::from("average of\n");
        for model in &models {
            writeln!(text, "  {}", model.display())?;
        }
        writeln!(text, "model: {}", self.out.display())?;
        print(&text)
    }

    /// The directories to average.
    fn models(&self) -> Result<Vec<PathBuf>> {
        match (self.model.as_slice(), self.last) {
            ([run], Some(last)) => {
                check_model(run)?;
                Ok(newest_checkpoints(run, last.get()).map_err(average_error)?)
            }
            (runs, Some(last)) => Err(format!(
                "--last {last}: needs the directory of one training run, but --model names {} directories",
                runs.len()
            )
            .into()),
            // The average of one model is a copy. The user most likely wants the average of its checkpoints.
            ([only], None) => Err(format!(
                "--model {}: only one directory; add --last N for the newest checkpoints of a run",
                only.display()
            )
            .into()),
            (models, None) => {
                models.iter().try_for_each(|model| check_model(model))?;
                Ok(models.to_vec())
            }
        }
    }
}

/// Checks that the directory exists. Not all models that can be averaged have a configuration.
fn check_model(model: &Path) -> std::result::Result<(), String> {
    match model.is_dir() {
        true => Ok(()),
        false => Err(no_model(model, None)),
    }
}

/// Errors of averaging, with the names of the flags.
fn average_error(error: AverageError) -> String {
    match error {
        AverageError::TooFewCheckpoints { run, found, asked } => format!(
            "--last {asked}: {} has {}; train with --keep-checkpoints {asked} to keep as many",
            run.display(),
            counted(found, "checkpoint")
        ),
        AverageError::Occupied(out) => {
            format!(
                "{} already holds a model; choose another --out",
                out.display()
            )
        }
        error => error.to_string(),
    }
}
