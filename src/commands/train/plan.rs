//! A run, resolved: what is to be trained, and how.

use transformer_core::{CONFIG_FILE, TransformerConfig};
use transformer_program::run_file::{RunFile, RunFileError, Values};
use transformer_train::TrainingConfig;

use super::earlier::Earlier;
use super::errors::{config_error, train_error};
use super::init::updates_to_continue;
use crate::commands::Result;

/// The pairs that come with the project; the path is relative to its root.
const SHIPPED_DATA: &str = "examples/data/tatoeba.en-fr.tsv.gz";

/// A run whose keys all have their values.
pub struct Plan {
    /// The keys.
    pub run: RunFile,
    /// The places that gave them, for errors.
    pub values: Values,
    /// The model, until its tokenizers are known without their vocabularies.
    pub model: TransformerConfig,
    /// The library's configuration of the training.
    pub training: TrainingConfig,
}

impl Plan {
    /// The run that the values say, going on with an earlier one if there is one.
    ///
    /// # Errors
    /// The first value that is of the wrong type, out of range, or contradicts another.
    pub fn new(values: Values, earlier: Option<&Earlier>) -> Result<Self> {
        let mut run = RunFile::read(&values)?;
        if run.data.train.is_empty() {
            return Err(format!(
                "nothing to train on: give --data FILE… or --parallel SOURCE TARGET; in this project's root there is {SHIPPED_DATA}"
            )
            .into());
        }
        let init = init_config(&run, earlier)?;
        let model = run.resolve_model(init.as_ref(), &values)?;
        model
            .validate()
            .map_err(|error| config_error(&error, &values))?;
        let mut training = run.training_config();
        training.schedule_start = schedule_start(&run, earlier)?;
        training
            .validate()
            .map_err(|error| train_error(error, &values))?;
        let training = match earlier {
            Some(earlier) => earlier.with_its_peak(training, model.d_model),
            None => training,
        };
        Ok(Self {
            run,
            values,
            model,
            training,
        })
    }

    /// An error about a value.
    pub fn refuse(&self, key: &str, value: impl std::fmt::Display, rule: String) -> RunFileError {
        RunFileError::Value {
            subject: self.values.subject(key, value),
            rule,
        }
    }
}

/// The updates whose learning rates come before those of this run. A run that has made updates has them in its record.
fn schedule_start(run: &RunFile, earlier: Option<&Earlier>) -> Result<usize> {
    let record = earlier.and_then(|earlier| earlier.record.as_ref());
    match (&run.init.model, record) {
        (Some(_), Some(record)) if run.init.continue_schedule => Ok(record.config.schedule_start),
        (Some(init), None) if run.init.continue_schedule => updates_to_continue(init),
        _ => Ok(0),
    }
}

/// The configuration of the model to start from. A run that has a model of its own needs the other no more.
fn init_config(run: &RunFile, earlier: Option<&Earlier>) -> Result<Option<TransformerConfig>> {
    let Some(init) = &run.init.model else {
        return Ok(None);
    };
    let own = earlier
        .map(Earlier::directory)
        .filter(|directory| directory.join(CONFIG_FILE).exists());
    Ok(Some(TransformerConfig::load(own.unwrap_or(init))?))
}
