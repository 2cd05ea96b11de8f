//! A run that starts from a model: its weights and its learning rate schedule.

use std::path::Path;

use burn::tensor::backend::Backend;
use burn_autodiff::Autodiff;
use transformer_core::nn::WeightInit;
use transformer_core::{ModelDirectory, Transformer, TransformerConfig};
use transformer_train::optim::freeze;
use transformer_train::run::RunRecord;

use crate::commands::Result;
use crate::commands::model_directory::warn_of_unused;

/// The model in a directory, to be trained further, and the names of the parameters that the patterns freeze
/// ([`freeze`]). `config` may differ from the directory's configuration in dropout.
///
/// # Errors
/// When the weights cannot be read or do not fit the configuration, a pattern matches no parameter, or all parameters
/// are frozen.
pub fn initial_model<B: Backend>(
    directory: &ModelDirectory,
    config: &TransformerConfig,
    patterns: &[String],
    device: &B::Device,
) -> Result<(Transformer<Autodiff<B>>, Vec<String>)> {
    warn_of_unused(directory);
    let mut model = config.init_from::<Autodiff<B>>(&mut WeightInit::zeros(), device)?;
    directory.fill(&mut model)?;
    Ok(freeze(model, patterns)?)
}

/// The number of updates of the run in a directory, from which a new run continues the learning rate schedule
/// (`TrainingConfig::schedule_start`).
///
/// # Errors
/// When the directory holds no run, or its record cannot be read.
pub fn updates_to_continue(directory: &Path) -> Result<usize> {
    match RunRecord::load(directory)? {
        Some(record) => Ok(record.schedule_updates()),
        None => Err(format!(
            "{}: holds no training run whose learning rate schedule could be continued",
            directory.display()
        )
        .into()),
    }
}
