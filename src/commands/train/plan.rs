//! A resolved run: the model to train and its settings.

use transformer_core::formats::{CONFIG_FILE, ModelError};
use transformer_core::nn::ProductPrecision;
use transformer_core::{ModelDirectory, Tokenizers, TransformerConfig};
use transformer_train::TrainingConfig;
use transformer_train::optim::frozen_names;
use transformer_train::ranks::Ranks;

use super::earlier::Earlier;
use super::errors::{config_error, train_error};
use super::init::updates_to_continue;
use crate::backend::Target;
use crate::commands::{Result, model_directory};
use crate::process::note;
use crate::run_file::{RunFile, RunFileError, ValidationKeys, Values};

/// The pairs that are part of the project; the path is relative to its root.
const SHIPPED_DATA: &str = "examples/data/tatoeba.en-fr.tsv.gz";

/// The maximum number of parameters of a model: more than one machine can train, and few enough that no size overflows.
const MOST_PARAMETERS: u128 = 1 << 36;

/// A run with a value for every key.
pub struct Plan {
    /// The keys.
    pub run: RunFile,
    /// The places that set them, for errors.
    pub values: Values,
    /// The model. It has no vocabularies until its tokenizers are known.
    pub model: TransformerConfig,
    /// The model to start from. A run that has made updates has a model of its own instead.
    pub init: Option<ModelDirectory>,
    /// The library's configuration of the training.
    pub training: TrainingConfig,
    /// The names of the frozen parameters.
    pub frozen: Vec<String>,
    /// The keys of `[data]` that had another value in the earlier run.
    pub other_data: Vec<&'static str>,
    /// Whether the run has a checkpoint. Before its first one, it starts anew.
    pub is_resumed: bool,
    /// Whether `validation.length_penalty` had another value in the earlier run.
    pub has_new_length_penalty: bool,
}

impl Plan {
    /// The run that the values describe, which resumes the earlier run if there is one. Everything that can be checked
    /// before the pairs are read is checked here and in [`given_tokenizers`](super::tokenizers::given_tokenizers), also
    /// for a dry run.
    ///
    /// # Errors
    /// The first value that has the wrong type, is out of range, or contradicts another value or the earlier run.
    pub fn new(values: Values, earlier: Option<&Earlier>) -> Result<Self> {
        if let Some(earlier) = earlier {
            earlier.check_init(&values)?;
        }
        let mut run = RunFile::read(&values)?;
        if run.data.train.is_empty() {
            return Err(format!(
                "no training data; add --data FILE… or --parallel SOURCE TARGET, such as this project's {SHIPPED_DATA}"
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
        let had = before.and_then(|file| file.run.validation.length_penalty);
        let number = run.validation.best_by.criterion().number;
        let record = earlier.and_then(|earlier| earlier.record.as_ref());
        let is_resumed = record.is_some();
        let mut validations = record.into_iter().flat_map(|record| &record.validations);
        let is_compared = validations.any(|earlier| earlier.numbers.contains_key(&number));
        if let Some(file) = before.filter(|_| is_compared) {
            check_translations(&run.validation, &file.run.validation, &values)?;
        }
        Ok(Self {
            is_resumed,
            has_new_length_penalty: run.validation.length_penalty != had,
            run,
            values,
            model,
            init,
            training,
            frozen,
            other_data,
        })
    }

    /// Whether the run writes the decoding options of the model that it trains.
    pub fn writes_decoding(&self) -> bool {
        !self.is_resumed || self.has_new_length_penalty
    }

    /// Checks that the backend has matrix multiplications in the run's precision. A note warns if they are slow.
    ///
    /// # Errors
    /// When it has none.
    pub fn check_precision(&self, target: Target<'_>) -> Result {
        let backend = target.backend;
        let precision = self.training.precision;
        if precision == ProductPrecision::F32 {
            return Ok(());
        }
        if !target.trains_in_bf16()? {
            let rule = format!(
                "needs --backend flex, ndarray or tch, and the Cargo feature of that name, or a GPU that has bf16; {backend} trains in \"f32\" only here"
            );
            let value = format!("\"{precision}\"");
            return Err(self.refuse("training.precision", value, rule).into());
        }
        if !backend.multiplies_bf16_fast() {
            note(format_args!(
                "warning: on this processor, {backend} is not faster in bf16 than in f32"
            ));
        }
        Ok(())
    }

    /// Checks that each of a process's devices has batches in an update to compute.
    ///
    /// # Errors
    /// When there are too few batches.
    pub fn check_devices(&self, devices: usize, ranks: &Ranks) -> Result {
        let batches = self.training.batches_per_update;
        let (size, least) = (ranks.size(), devices * ranks.size());
        if batches >= least {
            return Ok(());
        }
        let of_all = match size {
            1 => format!("{devices} devices"),
            _ => format!("{devices} devices in each of {size} processes"),
        };
        let rule = format!("must be at least {least}, one batch for each of {of_all}");
        let key = "training.batches_per_update";
        Err(self.refuse(key, batches, rule).into())
    }

    /// Sets the vocabularies of the model to those of its tokenizers. A model to start from already has them.
    ///
    /// # Errors
    /// When the configuration is not valid.
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

/// Checks that a resumed run that keeps the model with the best translations translates as before. Otherwise, the values of
/// its validations could not be compared.
fn check_translations(
    now: &ValidationKeys,
    before: &ValidationKeys,
    values: &Values,
) -> std::result::Result<(), RunFileError> {
    let metric = now.best_by.key();
    let shown = |validation: &ValidationKeys| {
        let absent = || "absent".to_owned();
        let sentences = validation.sentences.map(|sentences| sentences.to_string());
        // Greedy decoding has none.
        let penalty = validation.length_penalty.filter(|_| validation.beam > 1);
        let penalty = penalty.map(|penalty| penalty.to_string());
        [
            ("validation.beam", validation.beam.to_string()),
            ("validation.sentences", sentences.unwrap_or_else(absent)),
            ("validation.length_penalty", penalty.unwrap_or_else(absent)),
        ]
    };
    for ((key, now), (_, before)) in shown(now).into_iter().zip(shown(before)) {
        if now != before {
            let rule = format!(
                "is {before} in the run, which keeps the model with the best \"{metric}\" of its translations; keep it, or set `validation.best_by` to \"loss\""
            );
            return Err(values.refuse(key, now, rule));
        }
    }
    Ok(())
}

/// The number of updates that the learning rate schedule counts before this run. A run that has made updates has it in
/// its record.
fn schedule_start(run: &RunFile, earlier: Option<&Earlier>) -> Result<usize> {
    let record = earlier.and_then(|earlier| earlier.record.as_ref());
    match (&run.init.model, record) {
        (Some(_), Some(record)) if run.init.continue_schedule => Ok(record.config.schedule_start),
        (Some(init), None) if run.init.continue_schedule => updates_to_continue(init),
        _ => Ok(0),
    }
}

/// The configuration of a run that started from a model and has made updates, so that it has its own model.
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
    let directory = directory.map_err(named)?;
    model_directory::refuse_language_model(&directory)
        .map_err(|problem| values.refuse("init.model", init.display(), problem))?;
    Ok(Some(directory))
}

/// Checks that a configuration describes a model that can be built.
fn check_model(model: &TransformerConfig, values: &Values) -> Result {
    model
        .validate()
        .map_err(|error| config_error(&error, values))?;
    match model.num_params() {
        parameters if parameters > MOST_PARAMETERS => Err(format!(
            "the sizes in `[model]` give {parameters} parameters; at most {MOST_PARAMETERS} are supported"
        )
        .into()),
        _ => Ok(()),
    }
}

/// The names of the parameters that `init.freeze` freezes.
///
/// # Errors
/// When a pattern freezes no parameter, or all parameters are frozen.
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
