//! The end of a run: the mean of its last checkpoints (§6.1).

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::backend::AutodiffBackend;

use super::{Run, StopReason, ValidModel};
use crate::average::average_models;
use crate::checkpoint::Checkpoints;
use crate::error::TrainError;
use crate::metrics::Statistics;
use crate::objective::{Objective, Trainable};
use crate::run_state::RunState;
use crate::training_model::TrainingModel;
use crate::validation::AverageOutcome;

/// How a run had ended, if nothing is left to do for it in its directory: no update, validation, average or file.
pub(crate) struct Ended {
    pub stopped: StopReason,
    pub average: Option<AverageOutcome>,
}

impl Ended {
    /// The end of a run whose newest checkpoint has this state; `None` if something is left to do.
    pub fn before(state: &RunState, checkpoints: &Checkpoints) -> Result<Option<Self>, TrainError> {
        let Some(stopped) = state.ended() else {
            return Ok(None);
        };
        if !checkpoints.are_settled(state)? {
            return Ok(None);
        }
        let average = match last_checkpoints(state, checkpoints)? {
            None => None,
            Some((updates, _)) => match state.made_average(&updates) {
                None => return Ok(None),
                Some(made) => Some(made.clone()),
            },
        };
        Ok(Some(Self { stopped, average }))
    }

    /// The end of a run that rank 0 has found to have ended: it knows how.
    pub fn elsewhere() -> Self {
        Self {
            stopped: StopReason::Updates,
            average: None,
        }
    }
}

/// Checkpoints of a run: their updates, and their directories in the same order.
type UpdatesAndDirectories = (Vec<usize>, Vec<PathBuf>);

/// The last checkpoints, of which a run makes the mean at its end; `None` if it makes none, or has one checkpoint
/// only.
fn last_checkpoints(
    state: &RunState,
    checkpoints: &Checkpoints,
) -> Result<Option<UpdatesAndDirectories>, TrainError> {
    let last = checkpoints.last(state, state.config.average_last)?;
    Ok(match last.len() {
        0 | 1 => None,
        _ => Some(last.into_iter().unzip()),
    })
}

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
        let Some(checkpoints) = &strategy.checkpoints else {
            return Ok(None);
        };
        let outcome = match last_checkpoints(&self.state, checkpoints)? {
            None if !self.state.average_is_due => return Ok(None),
            None => None,
            Some((updates, directories)) => {
                if let Some(made) = self.state.made_average(&updates) {
                    return Ok(Some(made.clone()));
                }
                let model = self.mean(checkpoints, &directories)?;
                let outcome = self.judge(checkpoints, &model, updates)?;
                self.watch.averaged(&outcome);
                Some(outcome)
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
        checkpoints.check()?;
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
        // A run that had ended here before makes another average if it is resumed with another `average_last`.
        let update = self.state.update;
        let averages = &mut self.state.averages;
        averages.retain(|average| average.validation.update != update);
        let kept = self.state.is_best(&validation);
        if kept {
            checkpoints.save_model(&model.model)?;
            self.state.note_choice(true);
        }
        Ok(AverageOutcome {
            checkpoints: updates,
            validation,
            kept,
        })
    }
}
