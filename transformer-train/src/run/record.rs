//! The record of a training run, read from its directory.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::TrainingConfig;
use crate::error::TrainError;
use crate::files;
use crate::run::checkpoints::{CHECKPOINTS, RUN_FILE, is_missing, whole_checkpoints, with_older};
use crate::run::state::{Choice, same_frozen, same_settings};
use crate::validation::{AverageOutcome, Validation};

/// The record of a training run, as of its newest checkpoint.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// Updates made.
    #[serde(rename = "update")]
    pub updates: usize,
    /// Seconds spent training, validation and saving left out.
    pub seconds: f64,
    /// The configuration of the training.
    pub config: TrainingConfig,
    /// Examples to train on.
    #[serde(rename = "pairs")]
    pub examples: usize,
    /// The names of the frozen parameters; `None` in records of earlier versions.
    #[serde(default)]
    pub frozen: Option<Vec<String>>,
    /// All validations, in order.
    pub validations: Vec<Validation>,
    /// The averages of checkpoints that were made where the run ended, in order.
    #[serde(default)]
    pub averages: Vec<AverageOutcome>,
    /// The choice of the model that the directory has, which earlier versions did not record.
    #[serde(default)]
    pub(crate) choice: Option<Choice>,
    /// The directories of the checkpoints, the oldest first: the newest ones, and those of the best
    /// validations. Empty in the record of one checkpoint.
    #[serde(skip)]
    pub checkpoints: Vec<PathBuf>,
}

impl RunRecord {
    /// Reads the record of the run in a directory, or that of one of its checkpoints; `None` where
    /// there is no run.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged; where that is the newest checkpoint's,
    /// [`TrainError::DamagedCheckpoint`] names an older one to go on from.
    pub fn load(directory: impl AsRef<Path>) -> Result<Option<Self>, TrainError> {
        let directory = directory.as_ref();
        let checkpoints = whole_checkpoints(directory).map_err(TrainError::io(directory))?;
        let checkpoints: Vec<_> = checkpoints.into_iter().map(|(_, path)| path).collect();
        // A checkpoint is a model directory itself.
        let newest = checkpoints.last().map_or(directory, PathBuf::as_path);
        let path = newest.join(RUN_FILE);
        let json = match files::read(&path) {
            Ok(json) => json,
            Err(error) if checkpoints.is_empty() && is_missing(&error) => return Ok(None),
            Err(error) => return Err(with_older(directory, TrainError::io(path)(error))),
        };
        match serde_json::from_slice::<Self>(&json) {
            Ok(record) => Ok(Some(Self {
                checkpoints,
                ..record
            })),
            Err(error) => {
                let problem = error.to_string();
                Err(with_older(directory, TrainError::Damaged { path, problem }))
            }
        }
    }

    /// The model that the directory keeps; `None` before the first validation.
    ///
    /// [`TrainingConfig::best_by`] chose it, as it was then ([`kept_by`](Self::kept_by)): after a resume with another
    /// one, the model stays until one is better by that.
    pub fn kept_model(&self) -> Option<KeptModel<'_>> {
        let Some(choice) = &self.choice else {
            return self.best_model();
        };
        let is_there = |validation: &Validation| validation.update == choice.update;
        if choice.is_average {
            let mut kept = self.averages.iter().filter(|average| average.kept);
            let kept = kept.find(|average| is_there(&average.validation));
            return kept.map(KeptModel::Average);
        }
        let mut validations = self.validations.iter();
        let kept = validations.find(|validation| is_there(validation));
        kept.map(KeptModel::Validation)
    }

    /// The number by which the model that the directory keeps was the best one.
    pub fn kept_by(&self) -> &str {
        match &self.choice {
            Some(choice) => &choice.by,
            None => &self.config.best_by.number,
        }
    }

    /// The model that `best_by` chooses of all.
    fn best_model(&self) -> Option<KeptModel<'_>> {
        let validations = self.validations.iter().map(KeptModel::Validation);
        let averages = self.averages.iter().map(KeptModel::Average);
        let mut models: Vec<_> = validations.chain(averages).collect();
        // The average of a run's end comes after the validation there.
        models.sort_by_key(|model| model.validation().update);
        let by = &self.config.best_by;
        let value = |model: KeptModel<'_>| by.value(model.validation());
        let mut kept: Option<KeptModel<'_>> = None;
        for model in models {
            let before = kept.map_or(f64::NAN, value);
            let replaces = match model {
                KeptModel::Validation(_) => before.is_nan() || by.is_better(value(model), before),
                KeptModel::Average(average) => average.kept,
            };
            if replaces {
                kept = Some(model);
            }
        }
        kept
    }

    /// Checks that a run with these settings goes on with this one, as [`Trainer::resume`](crate::Trainer::resume)
    /// does before the first update.
    ///
    /// # Errors
    /// [`TrainError::OtherRun`], which names the first setting that must not change.
    pub fn check_settings(&self, now: &TrainingConfig) -> Result<(), TrainError> {
        same_settings(self.newest(), &self.config, now)
    }

    /// Checks that a run whose frozen parameters have these names ([`frozen_names`](crate::optim::frozen_names)) goes on
    /// with this one, as [`Trainer::resume`](crate::Trainer::resume) does before the first update.
    ///
    /// # Errors
    /// [`TrainError::OtherFrozen`], which names the first parameter that differs.
    pub fn check_frozen(&self, now: &[String]) -> Result<(), TrainError> {
        match &self.frozen {
            Some(before) => same_frozen(self.newest(), before, now),
            None => Ok(()),
        }
    }

    /// An error about the newest checkpoint, such as that of one of its files; if the checkpoint is damaged, with an
    /// older one to go on from ([`TrainError::DamagedCheckpoint`]).
    pub fn with_older_checkpoint(&self, error: TrainError) -> TrainError {
        // `checkpoints/update-…` of the run.
        match self.newest().ancestors().nth(2) {
            Some(run) => with_older(run, error),
            None => error,
        }
    }

    /// The directory of the newest checkpoint.
    fn newest(&self) -> &Path {
        let newest = self.checkpoints.last();
        newest.map_or(Path::new(""), PathBuf::as_path)
    }

    /// The updates that the schedule of the learning rate has made, with those that the run continued: the
    /// [`TrainingConfig::schedule_start`] of a run that goes on with this run's rates.
    pub fn schedule_updates(&self) -> usize {
        self.config.schedule_start.saturating_add(self.updates)
    }
}

/// The model that the directory of a run keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeptModel<'a> {
    /// The model of a validation.
    Validation(&'a Validation),
    /// The mean of the last checkpoints.
    Average(&'a AverageOutcome),
}

impl<'a> KeptModel<'a> {
    /// Its validation.
    pub fn validation(self) -> &'a Validation {
        match self {
            Self::Validation(validation) => validation,
            Self::Average(average) => &average.validation,
        }
    }
}

/// Whether a training run has begun in a directory, even if it has not saved anything yet.
pub fn holds_run(directory: impl AsRef<Path>) -> bool {
    directory.as_ref().join(CHECKPOINTS).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::criterion::Criterion;
    use crate::validation::tests::validation;

    /// [`chosen`], in a record that does not have the choice.
    fn kept(numbers: &[f64], averages: Vec<AverageOutcome>) -> Option<Vec<usize>> {
        chosen(numbers, averages, None).0
    }

    /// The updates of the model that is kept, and the number that chose it. `best_by` is the highest BLEU; validations
    /// have these numbers, after the updates 1, 2, ….
    fn chosen(
        numbers: &[f64],
        averages: Vec<AverageOutcome>,
        choice: Option<Choice>,
    ) -> (Option<Vec<usize>>, String) {
        let numbered = (1..).zip(numbers);
        let record = RunRecord {
            updates: numbers.len(),
            seconds: 0.0,
            config: TrainingConfig {
                best_by: Criterion::highest("BLEU"),
                ..TrainingConfig::default()
            },
            examples: 1,
            frozen: None,
            validations: numbered
                .map(|(update, &number)| validation(update, number))
                .collect(),
            averages,
            choice,
            checkpoints: Vec::new(),
        };
        let by = record.kept_by().to_owned();
        let updates = record.kept_model().map(|kept| match kept {
            KeptModel::Validation(validation) => vec![validation.update],
            KeptModel::Average(average) => average.checkpoints.clone(),
        });
        (updates, by)
    }

    fn average(checkpoints: &[usize], number: f64, kept: bool) -> AverageOutcome {
        let last = checkpoints.last().copied().unwrap_or(0);
        AverageOutcome {
            checkpoints: checkpoints.to_vec(),
            validation: validation(last, number),
            kept,
        }
    }

    #[test]
    fn the_model_that_is_kept_is_that_of_the_best_validation_or_average() {
        assert_eq!(kept(&[], vec![]), None);
        assert_eq!(kept(&[3.0, 5.0, 5.0, f64::NAN], vec![]), Some(vec![2]));
        // Nothing is known of them: the newest.
        assert_eq!(kept(&[f64::NAN, f64::NAN], vec![]), Some(vec![2]));
        assert_eq!(kept(&[f64::NAN, 1.0, 0.5], vec![]), Some(vec![2]));

        let kept_one = || vec![average(&[1, 2], 6.0, true)];
        assert_eq!(kept(&[3.0, 5.0], kept_one()), Some(vec![1, 2]));
        // The run went on.
        assert_eq!(kept(&[3.0, 5.0, 6.0], kept_one()), Some(vec![1, 2]));
        assert_eq!(kept(&[3.0, 5.0, 7.0], kept_one()), Some(vec![3]));
        let other = vec![average(&[1, 2], 4.0, false)];
        assert_eq!(kept(&[3.0, 5.0], other), Some(vec![2]));
    }

    /// A run that was resumed with another `best_by` keeps its model until one is better by that.
    #[test]
    fn the_model_that_is_kept_is_the_one_that_was_chosen() {
        let choice = |update, is_average, by: &str| {
            Some(Choice {
                update,
                is_average,
                by: by.into(),
            })
        };
        let numbers = [3.0, 5.0, 4.0];
        let by = |name: &str| name.to_owned();
        let found = chosen(&numbers, vec![], choice(3, false, "loss"));
        assert_eq!(found, (Some(vec![3]), by("loss")));
        let found = chosen(&numbers, vec![], choice(2, false, "BLEU"));
        assert_eq!(found, (Some(vec![2]), by("BLEU")));
        let averages = || vec![average(&[1, 2], 4.5, true), average(&[2, 3], 9.0, false)];
        let found = chosen(&numbers, averages(), choice(2, true, "loss"));
        assert_eq!(found, (Some(vec![1, 2]), by("loss")));
        // The newest model, in place of one that was lost, and not validated.
        let found = chosen(&numbers, vec![], choice(4, false, "BLEU"));
        assert_eq!(found, (None, by("BLEU")));
        assert_eq!(chosen(&numbers, vec![], None), (Some(vec![2]), by("BLEU")));
    }
}
