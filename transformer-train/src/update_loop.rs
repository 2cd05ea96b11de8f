//! The training loop, by updates: a strategy for Burn's Learner.
//!
//! Burn's own loop steps the schedule once per batch, validates and saves once per epoch, and
//! resumes at an epoch's start. Here the unit is the *update*: one optimizer step, one step of the
//! schedule, however many batches its gradients come from. The Learner, its metrics, its renderers
//! and its interrupter are Burn's.
//!
//! | file | has |
//! |---|---|
//! | here | the loop (`Run::updates`), when it pauses, and when it ends |
//! | `updating` | one update |
//! | `validating` | one validation |
//! | `ending` | the mean of the last checkpoints |

mod ending;
mod updating;
mod validating;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use burn::data::dataloader::Progress;
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{
    Interrupter, Learner, LearningComponentsMarker, SupervisedLearningStrategy,
    SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents, ValidLoader,
};

use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::config::TrainingConfig;
use crate::data::UpdateLoader;
use crate::error::TrainError;
use crate::moving_average::MovingAverage;
use crate::objective::{Objective, Trainable};
use crate::optimizer::PaperAdam;
use crate::progress::{ObserverError, Watch};
use crate::ranks::{Ranks, checksum, differing};
use crate::run_state::RunState;
use crate::schedule::RateSchedule;
use crate::training_model::TrainingModel;
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
    /// [`Trainer::on_validation`](crate::Trainer::on_validation) or
    /// [`Trainer::validate_with`](crate::Trainer::validate_with) ended it.
    Validation,
    /// As many validations in a row as [`TrainingConfig::patience`] allows were not better. Resumed with the
    /// same patience, it has still ended; with more, or without, it goes on.
    Patience,
}

pub(crate) type Components<B, M> = LearningComponentsMarker<
    B,
    RateSchedule,
    TrainingModel<B, M>,
    PaperAdam<TrainingModel<B, M>, B>,
>;

type InnerModel<B, M> = <M as AutodiffModule<B>>::InnerModule;

/// A model as it is validated.
pub(crate) type ValidModel<B, M> =
    TrainingModel<<B as AutodiffBackend>::InnerBackend, InnerModel<B, M>>;

/// The result of a run.
pub(crate) struct Outcome {
    pub state: RunState,
    pub stopped: StopReason,
    pub average: Option<AverageOutcome>,
    pub observer_errors: Vec<ObserverError>,
}

/// The training loop, by updates.
pub(crate) struct UpdateStrategy<B: AutodiffBackend, M: Trainable<B>> {
    pub config: TrainingConfig,
    /// At least one, the first being the model's.
    pub devices: Vec<B::Device>,
    /// The processes that train together. Fields that only rank 0 has are `None` in the others.
    pub ranks: Ranks,
    /// Beginning with the first update of the run. Not Burn's loader, whose items could not be errors.
    pub updates: UpdateLoader<<M as Objective<B>>::Example>,
    pub optimizer: PaperAdam<TrainingModel<B, M>, B>,
    pub schedule: RateSchedule,
    pub checkpoints: Option<Checkpoints>,
    pub deadline: Option<Instant>,
    pub start: Mutex<Option<Start<B, M>>>,
    pub outcome: Arc<Mutex<Option<Result<Outcome, TrainError>>>>,
}

/// The state that a run starts with, beside its model and optimizer.
pub(crate) struct Start<B: AutodiffBackend, M: Trainable<B>> {
    pub state: RunState,
    pub hook: ValidationHook<B::InnerBackend, InnerModel<B, M>>,
    pub average: Option<MovingAverage<ValidModel<B, M>>>,
    pub watch: Watch,
}

impl<B: AutodiffBackend, M: Trainable<B>> SupervisedLearningStrategy<Components<B, M>>
    for UpdateStrategy<B, M>
{
    fn fit(
        &self,
        components: TrainingComponents<Components<B, M>>,
        learner: Learner<Components<B, M>>,
        _train: TrainLoader<Components<B, M>>,
        valid: ValidLoader<Components<B, M>>,
        _starting_epoch: usize,
    ) -> (
        TrainingModel<B, M>,
        SupervisedTrainingEventProcessor<Components<B, M>>,
    ) {
        let start = self
            .start
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Start {
            state,
            hook,
            average,
            watch,
        } = start.expect("a strategy runs once");
        // The learner would hold a copy of the model during each step, and weights could not be changed
        // in place.
        let model = learner.model();
        drop(learner);
        let mut run = Run {
            strategy: self,
            model: Some(model),
            optimizer: self.optimizer.clone(),
            schedule: self.schedule.clone(),
            valid,
            processor: components.event_processor,
            interrupter: components.interrupter,
            average,
            saved: (state.update, Instant::now()),
            summed: Vec::new(),
            state,
            hook,
            watch,
        };
        let result = run
            .until_the_end()
            .map_err(|error| match &self.checkpoints {
                Some(checkpoints) => checkpoints.or_lost(error),
                None => error,
            });
        let observer_errors = run.watch.end();
        let outcome = result.map(|(stopped, average)| Outcome {
            state: run.state,
            stopped,
            average,
            observer_errors,
        });
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        let model = match run.average {
            Some(average) => {
                <TrainingModel<B, M> as AutodiffModule<B>>::from_inner(average.into_model())
            }
            None => run.model.expect(MODEL),
        };
        (model, run.processor)
    }
}

/// Why rank 0 ends the run, if it does.
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

const MODEL: &str = "the optimizer returns the model";

/// A run under way.
struct Run<'a, B: AutodiffBackend, M: Trainable<B>> {
    strategy: &'a UpdateStrategy<B, M>,
    /// `None` while the optimizer holds it.
    model: Option<TrainingModel<B, M>>,
    /// The average of its weights, if the run has one. After the first update they share no tensor that is
    /// trained, so that the optimizer goes on changing weights in place.
    average: Option<MovingAverage<ValidModel<B, M>>>,
    optimizer: PaperAdam<TrainingModel<B, M>, B>,
    schedule: RateSchedule,
    valid: ValidLoader<Components<B, M>>,
    processor: SupervisedTrainingEventProcessor<Components<B, M>>,
    interrupter: Interrupter,
    state: RunState,
    hook: ValidationHook<B::InnerBackend, InnerModel<B, M>>,
    /// The update of the last checkpoint, and when it was written.
    saved: (usize, Instant),
    /// The memory in which gradients are summed over all processes.
    summed: Vec<f32>,
    watch: Watch,
}

impl<B: AutodiffBackend, M: Trainable<B>> Run<'_, B, M> {
    /// Makes updates until the run ends, and the average of its last checkpoints.
    fn until_the_end(&mut self) -> Result<(StopReason, Option<AverageOutcome>), TrainError> {
        let stopped = self.updates()?;
        let average = match stopped {
            StopReason::Interrupted => None,
            _ => self.average_last_checkpoints()?,
        };
        self.strategy.ranks.wait_for_all();
        Ok((stopped, average))
    }

    /// Makes updates until the run ends; validates and saves as it goes. All processes pause where rank 0 does, and
    /// where any of them is interrupted; it says whether they go on.
    fn updates(&mut self) -> Result<StopReason, TrainError> {
        let mut updates = self.strategy.updates.start();
        let mut clock = Instant::now();
        let ranks = &self.strategy.ranks;
        loop {
            let own = self.stop_reason();
            let [interrupted, pauses] = ranks.any([
                own == Some(StopReason::Interrupted),
                ranks.is_first() && self.is_to_pause(own),
            ]);
            if interrupted || pauses {
                self.check_weights()?;
                let mut stopped = match interrupted {
                    true => Some(StopReason::Interrupted),
                    false => own,
                };
                if ranks.is_first() {
                    self.state.seconds += clock.elapsed().as_secs_f64();
                    self.watch.point(self.state.seconds);
                    stopped = self.pause(stopped)?;
                }
                if let Some(reason) = reason_of_first(ranks, stopped) {
                    return Ok(reason);
                }
                clock = Instant::now();
            }
            let update = updates.next().expect("updates never end");
            let update = self.checked(update)?;
            self.update(update)?;
            let seconds = self.state.seconds + clock.elapsed().as_secs_f64();
            self.watch.after_update(seconds);
        }
    }

    /// Whether there is something to do before the next update, or none.
    fn is_to_pause(&self, stopped: Option<StopReason>) -> bool {
        stopped.is_some() || self.validation_is_due(stopped) || self.checkpoint_is_due()
    }

    /// Fails in rank 0 if another process has computed other weights or moments.
    fn check_weights(&self) -> Result<(), TrainError> {
        let ranks = &self.strategy.ranks;
        if ranks.is_alone() {
            return Ok(());
        }
        let model = self.model.as_ref().expect(MODEL);
        let own = checksum::<B, _>(model, &self.strategy.optimizer);
        match differing(ranks, own) {
            None => Ok(()),
            Some(rank) => Err(TrainError::OtherWeights {
                update: self.state.update,
                rank,
                size: ranks.size(),
            }),
        }
    }

    /// The model that is trained, without gradients.
    fn trained_model(&self) -> ValidModel<B, M> {
        self.model.as_ref().expect(MODEL).valid()
    }

    /// The model that is validated and kept: of the averaged weights, if the run has them.
    fn valid_model(&self) -> ValidModel<B, M> {
        match &self.average {
            Some(average) => average.model().clone(),
            None => self.trained_model(),
        }
    }

    fn stop_reason(&self) -> Option<StopReason> {
        if self.interrupter.should_stop() {
            Some(StopReason::Interrupted)
        } else if self.state.update >= self.strategy.config.updates {
            Some(StopReason::Updates)
        } else if self
            .strategy
            .deadline
            .is_some_and(|end| Instant::now() >= end)
        {
            Some(StopReason::Time)
        } else {
            self.reason_of_validation()
        }
    }

    /// Why the last validation ended the run, if it did, also before the run was resumed.
    fn reason_of_validation(&self) -> Option<StopReason> {
        if self.state.average_is_due && self.strategy.config.average_last > 0 {
            Some(StopReason::Validation)
        } else if self.state.is_out_of_patience() {
            Some(StopReason::Patience)
        } else {
            None
        }
    }

    /// Whether the model is to be validated now. An interrupted run ends without; the resumed run validates
    /// first.
    fn validation_is_due(&self, stopped: Option<StopReason>) -> bool {
        let update = self.state.update;
        let validate_every = self.strategy.config.validate_every;
        let here = match stopped {
            None => update.is_multiple_of(validate_every),
            Some(reason) => reason != StopReason::Interrupted,
        };
        here && update > self.state.validated_update()
    }

    /// Whether there is to be a checkpoint now, with or without a validation.
    fn checkpoint_is_due(&self) -> bool {
        let update = self.state.update;
        let TrainingConfig {
            checkpoint_every,
            checkpoint_minutes,
            ..
        } = self.strategy.config;
        let (saved_update, saved) = self.saved;
        let waited = saved.elapsed().as_secs_f64() / 60.0;
        update > saved_update
            && (checkpoint_every.is_some_and(|every| update.is_multiple_of(every))
                || checkpoint_minutes.is_some_and(|minutes| waited >= minutes))
    }

    /// Progress within the round, from one validation to the next, and of the rounds.
    fn progress(&self) -> (Progress, Progress) {
        let TrainingConfig {
            updates,
            validate_every,
            ..
        } = self.strategy.config;
        let done = self.state.update.saturating_sub(1);
        let round = done / validate_every;
        let in_round = validate_every.min(updates.saturating_sub(round * validate_every));
        (
            Progress::new(done % validate_every + 1, in_round.max(1)),
            Progress::new(round + 1, updates.div_ceil(validate_every)),
        )
    }

    /// Validates, if that is due, and saves. Returns why the run ends, if it does.
    fn pause(&mut self, stopped: Option<StopReason>) -> Result<Option<StopReason>, TrainError> {
        if let Some(checkpoints) = &self.strategy.checkpoints {
            // Before a validation, which may take long.
            checkpoints.check()?;
        }
        if !self.validation_is_due(stopped) {
            self.save()?;
            return Ok(stopped);
        }
        let flow = match self.validate() {
            Ok(flow) => flow,
            // Training itself has not failed: a resumed run begins with this validation.
            Err(error @ TrainError::Validation { .. }) => {
                self.save()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let ended = flow.is_break().then_some(StopReason::Validation);
        // A run that is killed before the average is made must not go on: the hook is not asked again.
        self.state.average_is_due = ended.is_some() && self.strategy.config.average_last > 0;
        self.save()?;
        Ok(stopped.or(ended).or(self.reason_of_validation()))
    }

    /// Writes a checkpoint, if there is a directory.
    fn save(&mut self) -> Result<(), TrainError> {
        self.saved = (self.state.update, Instant::now());
        self.state.note_checkpoint();
        let Some(checkpoints) = &self.strategy.checkpoints else {
            return Ok(());
        };
        let valid = self.valid_model().model;
        // Until a validation has chosen one, the directory has the newest model.
        if self.state.validations.is_empty() || !checkpoints.has_model() {
            checkpoints.save_model(&valid)?;
            self.state.note_choice(false);
        }
        let (model, average) = match self.average {
            Some(_) => (self.trained_model().model, Some(valid)),
            None => (valid, None),
        };
        checkpoints.save::<B, _, _>(Checkpoint {
            model,
            average,
            optimizer: Optimizer::<TrainingModel<B, M>, B>::to_record(&self.strategy.optimizer),
            state: self.state.clone(),
        })
    }
}
