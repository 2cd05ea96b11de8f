//! The training loop, by updates: a strategy for Burn's Learner.
//!
//! Burn's own loop steps the schedule once per batch, validates and saves once per epoch, and
//! resumes at an epoch's start. Here the unit is the *update*: one optimizer step, one step of the
//! schedule, however many batches its gradients come from. The Learner, its metrics, its renderers
//! and its interrupter are Burn's.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use burn::data::dataloader::Progress;
use burn::lr_scheduler::LrScheduler;
use burn::module::{AutodiffModule, Module};
use burn::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{
    EventProcessorTraining, InferenceStep, Interrupter, ItemLazy, Learner, LearnerEvent,
    LearningComponentsMarker, SupervisedLearningStrategy, SupervisedTrainingEventProcessor,
    TrainLoader, TrainingComponents, TrainingItem, ValidLoader,
};

use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::config::TrainingConfig;
use crate::data::Update;
use crate::error::TrainError;
use crate::metrics::{DeviceStatistics, Numbers, Samples, Statistics, UpdateItem};
use crate::objective::{Objective, Trainable};
use crate::optimizer::{PaperAdam, global_norm};
#[cfg(feature = "tui")]
use crate::progress::let_ctrl_c_through;
use crate::run_state::RunState;
use crate::schedule::RateSchedule;
use crate::training_model::TrainingModel;
use crate::validation::{Measurement, Validation, ValidationContext, ValidationHook};

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
}

pub(crate) type Components<B, M> = LearningComponentsMarker<
    B,
    RateSchedule,
    TrainingModel<B, M>,
    PaperAdam<TrainingModel<B, M>, B>,
>;

type InnerModel<B, M> = <M as AutodiffModule<B>>::InnerModule;
type RunStart<B, M> = Start<<B as AutodiffBackend>::InnerBackend, InnerModel<B, M>>;

/// The result of a run.
pub(crate) struct Outcome {
    pub state: RunState,
    pub stopped: StopReason,
}

/// The training loop, by updates.
pub(crate) struct UpdateStrategy<B: AutodiffBackend, M: Trainable<B>> {
    pub config: TrainingConfig,
    /// At least one, the first being the model's.
    pub devices: Vec<B::Device>,
    pub optimizer: PaperAdam<TrainingModel<B, M>, B>,
    pub schedule: RateSchedule,
    pub checkpoints: Option<Checkpoints>,
    pub deadline: Option<Instant>,
    pub start: Mutex<Option<RunStart<B, M>>>,
    pub outcome: Arc<Mutex<Option<Result<Outcome, TrainError>>>>,
}

/// The state and hook that a run starts with.
pub(crate) struct Start<B: Backend, M> {
    pub state: RunState,
    pub hook: ValidationHook<B, M>,
}

impl<B: AutodiffBackend, M: Trainable<B>> SupervisedLearningStrategy<Components<B, M>>
    for UpdateStrategy<B, M>
{
    fn fit(
        &self,
        components: TrainingComponents<Components<B, M>>,
        learner: Learner<Components<B, M>>,
        train: TrainLoader<Components<B, M>>,
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
        let Start { state, hook } = start.expect("a strategy runs once");
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
            state,
            hook,
        };
        let result = run.updates(train);
        let outcome = result.map(|stopped| Outcome {
            state: run.state,
            stopped,
        });
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        (run.model.expect(MODEL), run.processor)
    }
}

const MODEL: &str = "the optimizer returns the model";

/// A run under way.
struct Run<'a, B: AutodiffBackend, M: Trainable<B>> {
    strategy: &'a UpdateStrategy<B, M>,
    /// `None` while the optimizer holds it.
    model: Option<TrainingModel<B, M>>,
    optimizer: PaperAdam<TrainingModel<B, M>, B>,
    schedule: RateSchedule,
    valid: ValidLoader<Components<B, M>>,
    processor: SupervisedTrainingEventProcessor<Components<B, M>>,
    interrupter: Interrupter,
    state: RunState,
    hook: ValidationHook<B::InnerBackend, InnerModel<B, M>>,
}

impl<B: AutodiffBackend, M: Trainable<B>> Run<'_, B, M> {
    /// Makes updates until the run ends; validates and saves as it goes.
    fn updates(&mut self, train: TrainLoader<Components<B, M>>) -> Result<StopReason, TrainError> {
        let config = &self.strategy.config;
        let mut updates = train.iter();
        let mut clock = Instant::now();
        loop {
            let mut stopped = self.stop_reason();
            let due = self.state.update > self.state.validated_update()
                && self.state.update.is_multiple_of(config.validate_every);
            if due || stopped.is_some() {
                self.state.seconds += clock.elapsed().as_secs_f64();
                if self.pause(stopped)?.is_break() {
                    stopped = stopped.or(Some(StopReason::Validation));
                }
                clock = Instant::now();
            }
            if let Some(reason) = stopped {
                return Ok(reason);
            }
            let update = updates.next().expect("updates never end");
            self.update(update)?;
        }
    }

    /// The model as it is now, without gradients.
    fn valid_model(&self) -> TrainingModel<B::InnerBackend, InnerModel<B, M>> {
        self.model.as_ref().expect(MODEL).valid()
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
            None
        }
    }

    /// One update: gradients, one step of the schedule, and one of the optimizer unless loss or gradients are
    /// not finite. The update counts in either case, so that the next one has other examples.
    fn update(&mut self, update: Update<<M as Objective<B>>::Example>) -> Result<(), TrainError> {
        let model = self.model.take().expect(MODEL);
        let (grads, mut item) = self.gradients(&model, update);
        let learning_rate = self.schedule.step();
        self.model = Some(match item.is_finite() {
            true => {
                let norm = item.gradient_norm;
                self.optimizer
                    .step_with_norm(learning_rate, model, grads, norm)
            }
            false => model,
        });
        self.state.count(&item);
        item.skipped = self.state.skipped;
        self.show(item, learning_rate);
        self.check_skipped(&item)
    }

    /// The gradients of the next update, added up from every device, and its loss and their norm. These are
    /// read back before the optimizer's step, which depends on them: once, in one transfer.
    fn gradients(
        &self,
        model: &TrainingModel<B, M>,
        update: Update<<M as Objective<B>>::Example>,
    ) -> (GradientsParams, UpdateItem) {
        let devices = &self.strategy.devices;
        let main = &devices[0];
        // Dropout is a function of the seed and the update, so that a resumed run draws the same.
        let number = self.state.update + 1;
        for device in devices {
            B::seed(device, mix(self.strategy.config.seed, number as u64));
        }
        let mut accumulator = GradientsAccumulator::new();
        let mut sums: Option<DeviceStatistics<B::InnerBackend>> = None;
        for (device, part) in devices.iter().zip(update.deal(devices.len())) {
            let (grads, part_sums) = if device == main {
                model.gradients(&part)
            } else {
                model.clone().fork(device).gradients(&part)
            };
            accumulator.accumulate(model, grads.to_device(main, model));
            sums = Some(match sums {
                Some(sums) => sums.add(part_sums),
                None => part_sums,
            });
        }
        let grads = accumulator.grads();
        let norm = global_norm::<B, TrainingModel<B, M>>(model, &grads);
        let sums = sums.expect("an update has a batch");
        (grads, UpdateItem::read(sums, norm))
    }

    /// Passes an update to the displays.
    fn show(&mut self, item: UpdateItem, learning_rate: f64) {
        let (progress, round) = self.progress();
        #[cfg(feature = "tui")]
        let_ctrl_c_through();
        self.processor
            .process_train(LearnerEvent::ProcessedItem(TrainingItem::new(
                item,
                progress,
                round,
                Some(self.state.update),
                Some(learning_rate),
            )));
    }

    /// Fails if as many updates in a row were skipped as may be, `item` being the last.
    fn check_skipped(&self, item: &UpdateItem) -> Result<(), TrainError> {
        let skipped = self.state.skipped_in_a_row;
        if skipped < self.strategy.config.skip_limit {
            return Ok(());
        }
        Err(TrainError::Diverged {
            skipped,
            update: self.state.update,
            loss: item.statistics.mean_loss(),
            gradient_norm: item.gradient_norm,
        })
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

    /// Fails if the loss of a validation is NaN or infinite: such a model is not worth saving.
    fn check_loss(&self, statistics: &Statistics) -> Result<(), TrainError> {
        let loss = statistics.mean_loss();
        match loss.is_finite() {
            true => Ok(()),
            false => Err(TrainError::ValidationLoss {
                update: self.state.update,
                loss,
            }),
        }
    }

    /// Validates, unless the run was interrupted, and saves. `Break` if the hook ends the run.
    fn pause(&mut self, stopped: Option<StopReason>) -> Result<ControlFlow<()>, TrainError> {
        let changed = self.state.update > self.state.validated_update();
        let mut flow = ControlFlow::Continue(());
        // An interrupted run ends without validation; the resumed run validates first.
        if changed && stopped != Some(StopReason::Interrupted) {
            match self.validate() {
                Ok(next) => flow = next,
                // Training itself has not failed: a resumed run begins with this validation.
                Err(error @ TrainError::Validation { .. }) => {
                    self.save()?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.save()?;
        Ok(flow)
    }

    /// Writes a checkpoint, if there is a directory.
    fn save(&self) -> Result<(), TrainError> {
        let Some(checkpoints) = &self.strategy.checkpoints else {
            return Ok(());
        };
        let model = self.valid_model().model;
        if !checkpoints.has_model() {
            checkpoints.save_model(&model)?;
        }
        checkpoints.save::<B, _, _>(Checkpoint {
            model,
            optimizer: Optimizer::<TrainingModel<B, M>, B>::to_record(&self.strategy.optimizer),
            state: self.state.clone(),
        })
    }

    /// Measures the model on the validation examples, and saves it if it is the best so far.
    fn validate(&mut self) -> Result<ControlFlow<()>, TrainError> {
        let (_, round) = self.progress();
        self.processor
            .process_train(LearnerEvent::EndEpoch(round.items_processed));
        let model = self.valid_model();
        let measured = self.measure(&model, &round);
        self.processor
            .process_valid(LearnerEvent::EndEpoch(round.items_processed));
        let (statistics, measured) = measured?;

        let train = std::mem::take(&mut self.state.since_validation);
        let mut validation = Validation::new(&self.state, &train, &statistics);
        let names = self.hook.names.iter().cloned();
        validation.numbers = names.zip(measured.numbers).collect();
        let best = self.state.is_best(&validation);
        self.state.validations.push(validation);
        if best && let Some(checkpoints) = &self.strategy.checkpoints {
            checkpoints.save_model(&model.model)?;
        }
        Ok(measured.flow)
    }

    /// Sums over the validation examples, and the hook's measurement; both are passed to the displays.
    fn measure(
        &mut self,
        model: &TrainingModel<B::InnerBackend, InnerModel<B, M>>,
        round: &Progress,
    ) -> Result<(Statistics, Measurement), TrainError> {
        let mut all = Statistics::default();
        let mut measured = Ok(Measurement::new(Vec::new()));
        let valid = self.valid.clone();
        let mut batches = valid.iter();
        let mut iteration = 0;
        while let Some(batch) = batches.next() {
            iteration += 1;
            let mut item = InferenceStep::step(model, batch);
            all.add(&item.statistics.clone().sync());
            let progress = batches.progress();
            if progress.items_processed == progress.items_total {
                measured = self.check_loss(&all).and_then(|()| self.ask(model, &all));
                if let Ok(measured) = &measured {
                    item.numbers = Numbers(measured.numbers.as_slice().into());
                    item.samples = Samples(measured.samples.as_slice().into());
                }
            }
            self.processor
                .process_valid(LearnerEvent::ProcessedItem(TrainingItem::new(
                    item,
                    progress,
                    round.clone(),
                    Some(iteration),
                    None,
                )));
        }
        Ok((all, measured?))
    }

    /// Calls the hook.
    fn ask(
        &mut self,
        model: &TrainingModel<B::InnerBackend, InnerModel<B, M>>,
        statistics: &Statistics,
    ) -> Result<Measurement, TrainError> {
        let update = self.state.update;
        let context = ValidationContext {
            model: &model.model,
            update,
            statistics,
            earlier: &self.state.validations,
        };
        self.hook
            .measure(context)
            .map_err(|source| TrainError::Validation { update, source })
    }
}

/// Hashes two numbers into one (the finaliser of SplitMix64), so that neighbours are independent.
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
