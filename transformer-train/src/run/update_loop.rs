//! The training loop, in updates.
//!
//! An *update* is one optimizer step and one step of the schedule, however many batches its gradients come from.
//! Validations, checkpoints, the end and the resume of a run all happen between updates.

mod ending;
mod updating;
mod validating;

use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::train::Interrupter;

use crate::config::TrainingConfig;
use crate::data::UpdateLoader;
use crate::error::{ObserverError, TrainError};
use crate::loaders::Batches;
use crate::objective::loss::LossOptions;
use crate::objective::{Objective, Trainable};
use crate::optim::moving_average::MovingAverage;
use crate::progress::Watch;
use crate::ranks::{Ranks, checksum, differing};
use crate::run::checkpoints::{Checkpoint, Checkpoints};
use crate::run::state::RunState;
use crate::validation::{AverageOutcome, ValidationHook};

pub(crate) use self::ending::Ended;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// All updates were made.
    Updates,
    /// The time limit was reached.
    Time,
    /// It was interrupted.
    Interrupted,
    /// The metrics of a validation ended it ([`Trainer::validate_with`](crate::Trainer::validate_with)).
    Validation,
    /// [`TrainingConfig::patience`] consecutive validations did not improve. If resumed with the same patience,
    /// the run has still ended; with more, or none, it continues.
    Patience,
}

/// The result of a run.
pub(crate) struct Outcome {
    pub state: RunState,
    pub stopped: StopReason,
    pub average: Option<AverageOutcome>,
    pub observer_errors: Vec<ObserverError>,
}

/// Rank 0's reason to end the run, if any.
fn reason_of_first(ranks: &Ranks, stopped: Option<StopReason>) -> Option<StopReason> {
    const REASONS: [Option<StopReason>; 6] = [
        None,
        Some(StopReason::Updates),
        Some(StopReason::Time),
        Some(StopReason::Interrupted),
        Some(StopReason::Validation),
        Some(StopReason::Patience),
    ];
    let own = REASONS.iter().position(|reason| *reason == stopped);
    let [first] = ranks.of_first([own.expect("it is one of them") as f64]);
    REASONS[first as usize]
}

/// A run in progress. Its model is an argument, because the optimizer consumes and returns it.
///
/// Fields that only rank 0 uses are `None` or empty in other processes.
pub(crate) struct Run<B: AutodiffBackend, M: Trainable<B>, O, S> {
    pub config: TrainingConfig,
    pub loss: LossOptions,
    /// At least one; the first is the model's.
    pub devices: Vec<B::Device>,
    /// The processes that train together.
    pub ranks: Ranks,
    /// Starts with the first update of the run.
    pub updates: UpdateLoader<<M as Objective<B>>::Example>,
    pub valid: Batches<<M as Objective<B>>::Example>,
    pub optimizer: O,
    pub schedule: S,
    /// The average of the model's weights, if the run has one. After the first update, the two share no trained
    /// tensor, so that the optimizer keeps changing weights in place.
    pub average: Option<MovingAverage<M::InnerModule>>,
    pub checkpoints: Option<Checkpoints>,
    pub deadline: Option<Instant>,
    pub interrupter: Interrupter,
    pub state: RunState,
    pub hook: ValidationHook<B::InnerBackend, M::InnerModule>,
    pub watch: Watch,
    /// The update of the last checkpoint, and when it was written.
    pub saved: (usize, Instant),
    /// The buffer in which gradients are summed over all processes.
    pub summed: Vec<f32>,
}

impl<B, M, O, S> Run<B, M, O, S>
where
    B: AutodiffBackend,
    M: Trainable<B>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler,
{
    /// Makes updates until the run ends, then averages its last checkpoints.
    pub fn train(mut self, model: M) -> Result<(M::InnerModule, Outcome), TrainError> {
        let result = self
            .until_the_end(model)
            .map_err(|error| match &self.checkpoints {
                Some(checkpoints) => checkpoints.or_lost(error),
                None => error,
            });
        let observer_errors = self.watch.end();
        let (model, stopped, average) = result?;
        let model = match self.average {
            Some(average) => average.into_model(),
            None => model.valid(),
        };
        let outcome = Outcome {
            state: self.state,
            stopped,
            average,
            observer_errors,
        };
        Ok((model, outcome))
    }

    fn until_the_end(
        &mut self,
        model: M,
    ) -> Result<(M, StopReason, Option<AverageOutcome>), TrainError> {
        let (model, stopped) = self.updates(model)?;
        let average = match stopped {
            StopReason::Interrupted => None,
            _ => self.average_last_checkpoints(&model)?,
        };
        self.ranks.wait_for_all();
        Ok((model, stopped, average))
    }

    /// Makes updates until the run ends, with validations and checkpoints. All processes pause when rank 0 does,
    /// and when any of them is interrupted; rank 0 decides whether they continue.
    fn updates(&mut self, mut model: M) -> Result<(M, StopReason), TrainError> {
        let mut updates = self.updates.start();
        let mut clock = Instant::now();
        let ranks = self.ranks.clone();
        loop {
            let own = self.stop_reason();
            let [interrupted, pauses] = ranks.any([
                own == Some(StopReason::Interrupted),
                ranks.is_first() && self.is_to_pause(own),
            ]);
            if interrupted || pauses {
                self.check_weights(&model)?;
                let mut stopped = match interrupted {
                    true => Some(StopReason::Interrupted),
                    false => own,
                };
                if ranks.is_first() {
                    self.state.seconds += clock.elapsed().as_secs_f64();
                    self.watch.point(self.state.seconds);
                    stopped = self.pause(&model, stopped)?;
                }
                if let Some(reason) = reason_of_first(&ranks, stopped) {
                    return Ok((model, reason));
                }
                clock = Instant::now();
            }
            let update = updates.next().expect("updates never end");
            let update = self.checked(&model, update)?;
            let (next, item) = self.update(model, update)?;
            model = next;
            let seconds = self.state.seconds + clock.elapsed().as_secs_f64();
            self.watch.after_update(&item, seconds);
        }
    }

    /// Whether anything is due before the next update.
    fn is_to_pause(&self, stopped: Option<StopReason>) -> bool {
        stopped.is_some() || self.validation_is_due(stopped) || self.checkpoint_is_due()
    }

    /// Fails on rank 0 if another process has computed different weights or moments.
    fn check_weights(&self, model: &M) -> Result<(), TrainError> {
        let ranks = &self.ranks;
        if ranks.is_alone() {
            return Ok(());
        }
        let own = checksum::<B, M, O>(model, &self.optimizer);
        match differing(ranks, own) {
            None => Ok(()),
            Some(rank) => Err(TrainError::OtherWeights {
                update: self.state.update,
                rank,
                size: ranks.size(),
            }),
        }
    }

    /// The model that is validated and saved: with averaged weights, if the run has them.
    fn valid_model(&self, model: &M) -> M::InnerModule {
        match &self.average {
            Some(average) => average.model().clone(),
            None => model.valid(),
        }
    }

    fn stop_reason(&self) -> Option<StopReason> {
        if self.interrupter.should_stop() {
            Some(StopReason::Interrupted)
        } else if self.state.update >= self.config.updates {
            Some(StopReason::Updates)
        } else if self.deadline.is_some_and(|end| Instant::now() >= end) {
            Some(StopReason::Time)
        } else {
            self.reason_of_validation()
        }
    }

    /// Why the last validation ended the run, if it did, even before a resume.
    fn reason_of_validation(&self) -> Option<StopReason> {
        if self.state.average_is_due && self.config.average_last > 0 {
            Some(StopReason::Validation)
        } else if self.state.is_out_of_patience() {
            Some(StopReason::Patience)
        } else {
            None
        }
    }

    /// Whether a validation is due. An interrupted run ends without one; the resumed run starts with it.
    fn validation_is_due(&self, stopped: Option<StopReason>) -> bool {
        let update = self.state.update;
        let validate_every = self.config.validate_every;
        let here = match stopped {
            None => update.is_multiple_of(validate_every),
            Some(reason) => reason != StopReason::Interrupted,
        };
        here && update > self.state.validated_update()
    }

    /// Whether a checkpoint is due, with or without a validation.
    fn checkpoint_is_due(&self) -> bool {
        let update = self.state.update;
        let TrainingConfig {
            checkpoint_every,
            checkpoint_minutes,
            ..
        } = self.config;
        let (saved_update, saved) = self.saved;
        let waited = saved.elapsed().as_secs_f64() / 60.0;
        update > saved_update
            && (checkpoint_every.is_some_and(|every| update.is_multiple_of(every))
                || checkpoint_minutes.is_some_and(|minutes| waited >= minutes))
    }

    /// Validates, if due, and saves. Returns why the run ends, if it does.
    fn pause(
        &mut self,
        model: &M,
        stopped: Option<StopReason>,
    ) -> Result<Option<StopReason>, TrainError> {
        if let Some(checkpoints) = &self.checkpoints {
            // Before a validation, which may take long.
            checkpoints.check()?;
        }
        if !self.validation_is_due(stopped) {
            self.save(model)?;
            return Ok(stopped);
        }
        let flow = match self.validate(model) {
            Ok(flow) => flow,
            // Training itself has not failed: a resumed run starts with this validation.
            Err(error @ TrainError::Validation { .. }) => {
                self.save(model)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let ended = flow.is_break().then_some(StopReason::Validation);
        // A run killed before the average is made must not continue: the hook is not asked again.
        self.state.average_is_due = ended.is_some() && self.config.average_last > 0;
        self.save(model)?;
        Ok(stopped.or(ended).or(self.reason_of_validation()))
    }

    /// Writes a checkpoint, if there is a directory.
    fn save(&mut self, model: &M) -> Result<(), TrainError> {
        self.saved = (self.state.update, Instant::now());
        self.state.note_checkpoint();
        let Some(checkpoints) = &self.checkpoints else {
            return Ok(());
        };
        let valid = self.valid_model(model);
        // Until a validation has chosen a model, the directory has the newest one.
        if self.state.validations.is_empty() || !checkpoints.has_model() {
            checkpoints.save_model(&valid)?;
            self.state.note_choice(false);
        }
        let (model, average) = match self.average {
            Some(_) => (model.valid(), Some(valid)),
            None => (valid, None),
        };
        checkpoints.save::<B, _, _>(Checkpoint {
            model,
            average,
            optimizer: self.optimizer.to_record(),
            state: self.state.clone(),
        })
    }
}
