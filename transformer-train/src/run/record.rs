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
    /// Number of updates.
    #[serde(rename = "update")]
    pub updates: usize,
    /// Seconds spent training, excluding validation and saving.
    pub seconds: f64,
    /// The training configuration.
    pub config: TrainingConfig,
    /// Number of training examples.
    #[serde(rename = "pairs")]
    pub examples: usize,
    /// The names of the frozen parameters; `None` in records of earlier versions.
    #[serde(default)]
    pub frozen: Option<Vec<String>>,
    /// All validations, in order.
    pub validations: Vec<Validation>,
    /// The averages of checkpoints made at the ends of the run, in order.
    #[serde(default)]
    pub averages: Vec<AverageOutcome>,
    /// Which model the directory has; earlier versions did not record it.
    #[serde(default)]
    pub(crate) choice: Option<Choice>,
    /// The directories of the checkpoints, oldest first: the newest ones, and those of the best validations. Empty
    /// in the record of a single checkpoint.
    #[serde(skip)]
    pub checkpoints: Vec<PathBuf>,
}

impl RunRecord {
    /// Reads the record of the run in a directory, or of one of its checkpoints; `None` if there is no run.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged. If the newest checkpoint is damaged,
    /// [`TrainError::DamagedCheckpoint`] names an older one from which to resume.
    pub fn load(directory: impl AsRef<Path>) -> Result<Option<Self>, TrainError> {
        let directory = directory.as_ref();
        let checkpoints = whole_checkpoints(directory).map_err(TrainError::io(directory))?;
        let checkpoints: Vec<_> = checkpoints.into_iter().map(|(_, path)| path).collect();
        // A checkpoint is itself a model directory.
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

    /// The model that the directory holds; `None` before the first validation.
    ///
    /// [`TrainingConfig::best_by`] chose it, with the value that it had then ([`kept_by`](Self::kept_by)). If the
    /// run is resumed with another `best_by`, the model stays until a validation is better by that metric.
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

    /// The metric by which the directory's model was the best.
    pub fn kept_by(&self) -> &str {
        match &self.choice {
            Some(choice) => &choice.by,
            None => &self.config.best_by.number,
        }
    }

    /// The best of all models by `best_by`.
    fn best_model(&self) -> Option<KeptModel<'_>> {
        let validations = self.validations.iter().map(KeptModel::Validation);
        let averages = self.averages.iter().map(KeptModel::Average);
        let mut models: Vec<_> = validations.chain(averages).collect();
        // The average at the end of a run comes after the validation there.
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

    /// Checks that a run with these settings can continue this one, as [`Trainer::resume`](crate::Trainer::resume)
    /// does before the first update.
    ///
    /// # Errors
    /// [`TrainError::OtherRun`], which names the first setting that must not change.
    pub fn check_settings(&self, now: &TrainingConfig) -> Result<(), TrainError> {
        same_settings(self.newest(), &self.config, now)
    }

    /// Checks that a run with these frozen parameters ([`frozen_names`](crate::optim::frozen_names)) can continue
    /// this one, as [`Trainer::resume`](crate::Trainer::resume) does before the first update.
    ///
    /// # Errors
    /// [`TrainError::OtherFrozen`], which names the first parameter that differs.
    pub fn check_frozen(&self, now: &[String]) -> Result<(), TrainError> {
        match &self.frozen {
            Some(before) => same_frozen(self.newest(), before, now),
            None => Ok(()),
        }
    }

    /// An error about the newest checkpoint, such as an error of one of its files. If the checkpoint is damaged,
    /// the result names an older one from which to resume ([`TrainError::DamagedCheckpoint`]).
    pub fn with_older_checkpoint(&self, error: TrainError) -> TrainError {
        // The run of `checkpoints/update-…`.
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

    /// Updates of the learning-rate schedule so far, including those of the run that this one continued: the
    /// [`TrainingConfig::schedule_start`] of a run that continues this schedule.
    pub fn schedule_updates(&self) -> usize {
        self.config.schedule_start.saturating_add(self.updates)
    }
}

/// The model that the directory of a run holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeptModel<'a> {
    /// The model of a validation.
    Validation(&'a Validation),
    /// The average of the last checkpoints.
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

/// Whether a training run has started in a directory, even if it has not saved anything yet.
pub fn holds_run(directory: impl AsRef<Path>) -> bool {
    directory.as_ref().join(CHECKPOINTS).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::criterion::Criterion;
    use crate::validation::tests::validation;

    /// [`chosen`], for a record without the choice.
    fn kept(numbers: &[f64], averages: Vec<AverageOutcome>) -> Option<Vec<usize>> {
        chosen(numbers, averages, None).0
    }

    /// The updates of the directory's model, and the metric that chose it. `best_by` is the highest BLEU; the
    /// validations, after updates 1, 2, …, have these values.
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
        // No value is known: the newest.
        assert_eq!(kept(&[f64::NAN, f64::NAN], vec![]), Some(vec![2]));
        assert_eq!(kept(&[f64::NAN, 1.0, 0.5], vec![]), Some(vec![2]));

        let kept_one = || vec![average(&[1, 2], 6.0, true)];
        assert_eq!(kept(&[3.0, 5.0], kept_one()), Some(vec![1, 2]));
        // The run continued.
        assert_eq!(kept(&[3.0, 5.0, 6.0], kept_one()), Some(vec![1, 2]));
        assert_eq!(kept(&[3.0, 5.0, 7.0], kept_one()), Some(vec![3]));
        let other = vec![average(&[1, 2], 4.0, false)];
        assert_eq!(kept(&[3.0, 5.0], other), Some(vec![2]));
    }

    /// A run resumed with another `best_by` keeps its model until one is better by that metric.
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
        // The newest model, not validated, in place of one that was lost.
        let found = chosen(&numbers, vec![], choice(4, false, "BLEU"));
        assert_eq!(found, (None, by("BLEU")));
        assert_eq!(chosen(&numbers, vec![], None), (Some(vec![2]), by("BLEU")));
    }
}
