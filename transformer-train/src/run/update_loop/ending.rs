//! The end of a run: the average of its last checkpoints (§6.1).

use std::fs;
use std::path::{Path, PathBuf};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;

use crate::error::TrainError;
use crate::objective::statistics::Statistics;
use crate::objective::{Objective, Trainable};
use crate::run::average::average_models;
use crate::run::checkpoints::Checkpoints;
use crate::run::state::RunState;
use crate::run::update_loop::{Run, StopReason};
use crate::validation::AverageOutcome;

/// The end state of a run that has nothing left to do in its directory: no update, validation, average or file.
pub(crate) struct Ended {
    pub stopped: StopReason,
    pub average: Option<AverageOutcome>,
}

impl Ended {
    /// The end of the run whose newest checkpoint has this state; `None` if something is left to do.
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

    /// The end of a run, in another process than rank 0, which knows the details.
    pub fn elsewhere() -> Self {
        Self {
            stopped: StopReason::Updates,
            average: None,
        }
    }
}

/// Checkpoints of a run: their updates, and their directories in the same order.
type UpdatesAndDirectories = (Vec<usize>, Vec<PathBuf>);

/// The last checkpoints, which are averaged at the end of a run; `None` if averaging is off or there is only one
/// checkpoint.
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

impl<B, M, O, S> Run<B, M, O, S>
where
    B: AutodiffBackend,
    M: Trainable<B>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler,
{
    /// Averages the last checkpoints, validates the result, and makes it the directory's model if it is the best.
    /// `None` if averaging is off or there is only one checkpoint.
    ///
    /// The model is written before its record, so that a run killed between the two repeats this when it is
    /// resumed.
    pub(crate) fn average_last_checkpoints(
        &mut self,
        model: &M,
    ) -> Result<Option<AverageOutcome>, TrainError> {
        let Some(checkpoints) = &self.checkpoints else {
            return Ok(None);
        };
        let outcome = match last_checkpoints(&self.state, checkpoints)? {
            None if !self.state.average_is_due => return Ok(None),
            None => None,
            Some((updates, directories)) => {
                if let Some(made) = self.state.made_average(&updates) {
                    return Ok(Some(made.clone()));
                }
                let mean = self.mean(model, checkpoints, &directories)?;
                let outcome = self.judge(&mean, updates)?;
                self.watch.averaged(&outcome);
                Some(outcome)
            }
        };
        self.state.averages.extend(outcome.clone());
        self.state.average_is_due = false;
        self.save(model)?;
        Ok(outcome)
    }

    /// The average of checkpoints, as a model.
    fn mean(
        &self,
        model: &M,
        checkpoints: &Checkpoints,
        directories: &[impl AsRef<Path>],
    ) -> Result<M::InnerModule, TrainError> {
        checkpoints.check()?;
        let directory = checkpoints.average();
        average_models(directories, &directory)?;
        let model = self.valid_model(model);
        let model = Objective::<B::InnerBackend>::restore(model, &directory)?;
        fs::remove_dir_all(&directory).map_err(TrainError::io(directory))?;
        Ok(model)
    }

    /// Validates the average of the checkpoints of these updates, and keeps it if it is the best model.
    fn judge(
        &mut self,
        model: &M::InnerModule,
        updates: Vec<usize>,
    ) -> Result<AverageOutcome, TrainError> {
        let (statistics, measured) = self.measure(model)?;
        let validation = self.validation(&Statistics::default(), &statistics, measured.numbers);
        let kept = self.state.is_best(&validation);
        // A run that had ended here makes another average if it is resumed with another `average_last`. The earlier one
        // may still be the directory's model.
        let update = self.state.update;
        let averages = &mut self.state.averages;
        averages.retain(|average| average.validation.update != update || average.kept && !kept);
        if let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| kept) {
            checkpoints.save_model(model)?;
            self.state.note_choice(true);
        }
        Ok(AverageOutcome {
            checkpoints: updates,
            validation,
            kept,
        })
    }
}
