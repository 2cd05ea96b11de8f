//! A run, resolved: the model to train and its settings.

use transformer_core::formats::{CONFIG_FILE, ModelError};
use transformer_core::nn::ProductPrecision;
use transformer_core::{ModelDirectory, Tokenizers, TransformerConfig};
use transformer_train::TrainingConfig;
use transformer_train::optim::frozen_names;

use super::earlier::Earlier;
use super::errors::{config_error, train_error};
use super::init::updates_to_continue;
use crate::backend::BackendChoice;
use crate::commands::Result;
use crate::process::note;
use crate::run_file::{RunFile, RunFileError, Values};

/// The pairs that come with the project; the path is relative to its root.
const SHIPPED_DATA: &str = "examples/data/tatoeba.en-fr.tsv.gz";

/// The most parameters of a model: more than one machine trains, and few enough that no size overflows.
const MOST_PARAMETERS: u128 = 1 << 36;

/// A run whose keys all have their values.
pub struct Plan {
    /// The keys.
    pub run: RunFile,
    /// The places that gave them, for errors.
    pub values: Values,
    /// The model, until its tokenizers are known without their vocabularies.
    pub model: TransformerConfig,
    /// The model to start from. A run that has made updates has a model of its own instead.
    pub init: Option<ModelDirectory>,
    /// The library's configuration of the training.
    pub training: TrainingConfig,
    /// The names of the frozen parameters.
    pub frozen: Vec<String>,
    /// The keys of `[data]` that the earlier run had with another value.
    pub other_data: Vec<&'static str>,
}

impl Plan {
    /// The run that the values describe, going on with an earlier one if there is one. Everything that can be known of
    /// a run before its pairs are read is checked here and in
    /// [`given_tokenizers`](super::tokenizers::given_tokenizers), for a dry run as for any other.
    ///
    /// # Errors
    /// The first value that is of the wrong type, out of range, or contradicts another, or the earlier run.
    pub fn new(values: Values, earlier: Option<&Earlier>) -> Result<Self> {
        if let Some(earlier) = earlier {
            earlier.check_init(&values)?;
        }
        let mut run = RunFile::read(&values)?;
        if run.data.train.is_empty() {
            return Err(format!(
                "nothing to train on: give --data FILE… or --parallel SOURCE TARGET; in this project's root there is {SHIPPED_DATA}"
            )
            .into());
        }
        let own = own_config(&run, earlier)?;
        let init = match own {
            None => init_directory(&run, &values)?,
            Some(_) => None,
        };
        let init_config = own.as_ref().or(init.as_ref().map(ModelDirectory::config));
        let model = run.resolve_model(init_config, &values)?;
        check_model(&model, &values)?;
        let frozen = frozen(&run, &model, &values)?;
        let mut training = run.training_config();
        if let Some(earlier) = earlier {
            earlier.check_schedule(&run, &values)?;
        }
        training.schedule_start = schedule_start(&run, earlier)?;
        training
            .validate()
            .map_err(|error| train_error(error, &values))?;
        if let Some(earlier) = earlier {
            training = earlier.with_its_peak(training, model.d_model);
            if let Some(record) = &earlier.record {
                let checked = record.check_settings(&training);
                checked.map_err(|error| train_error(error, &values))?;
            }
        }
        let before = earlier.and_then(|earlier| earlier.file.as_ref());
        let other_data = before.map_or(Vec::new(), |file| run.other_data(&file.run));
        Ok(Self {
            run,
            values,
            model,
            init,
            training,
            frozen,
            other_data,
        })
    }

    /// Checks that the backend has products in the run's precision. A note says where they are slow.
    ///
    /// # Errors
    /// When it has none.
    pub fn check_precision(&self, backend: BackendChoice) -> Result {
        let precision = self.training.precision;
        if precision == ProductPrecision::F32 {
            return Ok(());
        }
        if !backend.trains_in_bf16() {
            let rule = format!(
                "needs flex, ndarray or tch, by --backend and the Cargo feature of that name; {backend} trains in \"f32\" only"
            );
            let value = format!("\"{precision}\"");
            return Err(self.refuse("training.precision", value, rule).into());
        }
        if !backend.multiplies_bf16_fast() {
            note(format_args!(
                "warning: this processor has no instructions by which {backend} multiplies faster in bf16 than in f32"
            ));
        }
        Ok(())
    }

    /// Gives the model the vocabularies of its tokenizers. A model to start from has them already.
    ///
    /// # Errors
    /// When there is no such model.
    pub fn use_tokenizers(&mut self, tokenizers: &Tokenizers) -> Result {
        if self.run.init.model.is_none() {
            self.model.src_vocab_size = tokenizers.source().vocab_size();
            self.model.tgt_vocab_size = tokenizers.target().vocab_size();
        }
        check_model(&self.model, &self.values)
    }

    /// An error about a value.
    pub fn refuse(&self, key: &str, value: impl std::fmt::Display, rule: String) -> RunFileError {
        self.values.refuse(key, value, rule)
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

/// The configuration of a run that started from a model and has made updates, and so has a model of its own.
fn own_config(run: &RunFile, earlier: Option<&Earlier>) -> Result<Option<TransformerConfig>> {
    let goes_on = earlier.filter(|earlier| run.init.model.is_some() && earlier.updates() > 0);
    let own = goes_on
        .map(Earlier::directory)
        .filter(|directory| directory.join(CONFIG_FILE).exists());
    Ok(own.map(TransformerConfig::load).transpose()?)
}

/// The model that `init.model` names.
fn init_directory(run: &RunFile, values: &Values) -> Result<Option<ModelDirectory>> {
    let Some(init) = &run.init.model else {
        return Ok(None);
    };
    let directory = ModelDirectory::open(init);
    let named = |error: ModelError| values.refuse("init.model", init.display(), error.to_string());
    Ok(Some(directory.map_err(named)?))
}

/// Checks that a configuration describes a model that can be built.
fn check_model(model: &TransformerConfig, values: &Values) -> Result {
    model
        .validate()
        .map_err(|error| config_error(&error, values))?;
    match model.num_params() {
        parameters if parameters > MOST_PARAMETERS => Err(format!(
            "the sizes in `[model]` make {parameters} parameters; at most {MOST_PARAMETERS} are supported"
        )
        .into()),
        _ => Ok(()),
    }
}

/// The names of the parameters that `init.freeze` freezes.
///
/// # Errors
/// When a pattern freezes none, or none is left to train.
fn frozen(run: &RunFile, model: &TransformerConfig, values: &Values) -> Result<Vec<String>> {
    let patterns = &run.init.freeze;
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let names = model.parameter_shapes().into_iter().map(|(name, _)| name);
    match frozen_names(names.collect(), patterns) {
        Ok(names) => Ok(names),
        Err(error) => {
            let patterns = format_args!("{patterns:?}");
            Err(values
                .refuse("init.freeze", patterns, error.to_string())
                .into())
        }
    }
}
