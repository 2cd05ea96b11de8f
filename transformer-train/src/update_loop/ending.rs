//! The end of a run: the mean of its last checkpoints (§6.1).

use std::fs;
use std::path::Path;

use burn::tensor::backend::AutodiffBackend;

use super::{Run, ValidModel};
use crate::average::average_models;
use crate::checkpoint::Checkpoints;
use crate::error::TrainError;
use crate::metrics::Statistics;
use crate::objective::{Objective, Trainable};
use crate::training_model::TrainingModel;
use crate::validation::AverageOutcome;

impl<B: AutodiffBackend, M: Trainable<B>> Run<'_, B, M> {
    /// Makes the mean of the last checkpoints, validates it, and makes it the directory's model if it is the
    /// best one. `None` if the run makes none, or has one checkpoint only.
    ///
    /// The model is written before the record of it, so that a run that is killed between the two does the
    /// same again when it is resumed.
    pub(super) fn average_last_checkpoints(
        &mut self,
    ) -> Result<Option<AverageOutcome>, TrainError> {
        let strategy = self.strategy;
        let count = strategy.config.average_last;
        let Some(checkpoints) = strategy.checkpoints.as_ref().filter(|_| count > 0) else {
            return Ok(None);
        };
        let (updates, directories): (Vec<_>, Vec<_>) =
            checkpoints.last(&self.state, count)?.into_iter().unzip();
        let outcome = match updates.len() {
            0 | 1 => None,
            _ => {
                let model = self.mean(checkpoints, &directories)?;
                Some(self.judge(checkpoints, &model, updates)?)
            }
        };
        self.state.averages.extend(outcome.clone());
        self.state.average_is_due = false;
        self.save()?;
        Ok(outcome)
    }

    /// The mean of checkpoints, as a model.
    fn mean(
        &self,
        checkpoints: &Checkpoints,
        directories: &[impl AsRef<Path>],
    ) -> Result<ValidModel<B, M>, TrainError> {
        let directory = checkpoints.average();
        average_models(directories, &directory)?;
        let model = self.valid_model().model;
        let model = Objective::<B::InnerBackend>::restore(model, &directory)?;
        fs::remove_dir_all(&directory).map_err(TrainError::io(directory))?;
        Ok(TrainingModel::new(
            model,
            self.strategy.config.label_smoothing,
        ))
    }

    /// Validates the mean of the checkpoints of these updates, and keeps it if it is the best model.
    fn judge(
        &mut self,
        checkpoints: &Checkpoints,
        model: &ValidModel<B, M>,
        updates: Vec<usize>,
    ) -> Result<AverageOutcome, TrainError> {
        let (_, round) = self.progress();
        let (statistics, measured) = self.measure(model, &round)?;
        let validation = self.validation(&Statistics::default(), &statistics, measured.numbers);
        // A run that had ended here before makes the same average again.
        let update = self.state.update;
        let averages = &mut self.state.averages;
        averages.retain(|average| average.validation.update != update);
        let kept = self.state.is_best(&validation);
        if kept {
            checkpoints.save_model(&model.model)?;
        }
        Ok(AverageOutcome {
            checkpoints: updates,
            validation,
            kept,
        })
    }
}
