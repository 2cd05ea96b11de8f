//! The training loop, by updates: a strategy for Burn's Learner.
//!
//! Burn's own loop steps the schedule once per batch, validates and saves once per epoch, and
//! resumes at an epoch's start. Here the unit is the *update*: one optimizer step, one step of the
//! schedule, however many batches its gradients come from. The Learner, its metrics, its renderers
//! and its interrupter are Burn's.

mod ending;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use burn::data::dataloader::Progress;
use burn::lr_scheduler::LrScheduler;
use burn::module::{AutodiffModule, Module};
use burn::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn::train::{
    EventProcessorTraining, InferenceStep, Interrupter, ItemLazy, Learner, LearnerEvent,
    LearningComponentsMarker, SupervisedLearningStrategy, SupervisedTrainingEventProcessor,
    TrainLoader, TrainingComponents, TrainingItem, ValidLoader,
};

use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::config::TrainingConfig;
use crate::data::{CorpusError, LoadedUpdate, Update, UpdateLoader};
use crate::error::TrainError;
use crate::evaluate::check;
use crate::metrics::{DeviceStatistics, Numbers, Samples, Statistics, UpdateItem};
use crate::moving_average::MovingAverage;
use crate::objective::{Objective, Trainable};
use crate::optimizer::{PaperAdam, global_norm};
#[cfg(feature = "tui")]
use crate::progress::let_ctrl_c_through;
use crate::progress::{ObserverError, Watch};
use crate::run_state::RunState;
use crate::schedule::RateSchedule;
use crate::training_model::TrainingModel;
use crate::validation::{
    AverageOutcome, Measurement, Validation, ValidationContext, ValidationHook,
};

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
    /// Beginning with the first update of the run. Not Burn's loader, whose items could not be errors.
    pub updates: UpdateLoader<<M as Objective<B>>::Example>,
    pub optimizer: PaperAdam<TrainingModel<B, M>, B>,
    pub schedule: RateSchedule,
    pub checkpoints: Option<Checkpoints>,
    pub deadline: Option<Instant>,
    pub start: Mutex<Option<Start<B, M>>>,
    pub outcome: Arc<Mutex<Option<Result<Outcome, TrainError>>>>,
}

/// What a run starts with, beside its model and optimizer.
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
            state,
            hook,
            watch,
        };
        let result = run.until_the_end();
        let outcome = result.map(|(stopped, average)| Outcome {
            state: run.state,
            stopped,
            average,
            observer_errors: run.watch.into_errors(),
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
        Ok((stopped, average))
    }

    /// Makes updates until the run ends; validates and saves as it goes.
    fn updates(&mut self) -> Result<StopReason, TrainError> {
        let mut updates = self.strategy.updates.start();
        let mut clock = Instant::now();
        loop {
            let mut stopped = self.stop_reason();
            if stopped.is_some() || self.validation_is_due(stopped) || self.checkpoint_is_due() {
                self.state.seconds += clock.elapsed().as_secs_f64();
                self.watch.point(self.state.seconds);
                stopped = self.pause(stopped)?;
                clock = Instant::now();
            }
            if let Some(reason) = stopped {
                return Ok(reason);
            }
            let update = updates.next().expect("updates never end");
            let update = self.checked(update)?;
            self.update(update)?;
            let seconds = self.state.seconds + clock.elapsed().as_secs_f64();
            self.watch.after_update(seconds);
        }
    }

    /// An update that was read, whose examples fit the model.
    fn checked(
        &self,
        update: Result<LoadedUpdate<<M as Objective<B>>::Example>, CorpusError>,
    ) -> Result<Update<<M as Objective<B>>::Example>, TrainError> {
        let loaded = update?;
        let model = &self.model.as_ref().expect(MODEL).model;
        for (index, example) in loaded.numbered() {
            check::<B, M>(model, example, index, "training")?;
        }
        Ok(loaded.update)
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
        if item.is_finite() {
            self.average_weights();
        }
        item.skipped = self.state.skipped;
        self.watch.count(&item, learning_rate);
        self.show(item, learning_rate);
        self.check_skipped(&item)
    }

    /// Takes the weights of an update into their average.
    fn average_weights(&mut self) {
        let model = self.model.as_ref().expect(MODEL);
        let made = self.state.made();
        let average = self.average.take();
        self.average = average.map(|average| average.next::<B, _>(model, made));
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

    /// Validates, if that is due, and saves. Returns why the run ends, if it does.
    fn pause(&mut self, stopped: Option<StopReason>) -> Result<Option<StopReason>, TrainError> {
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

    /// Validates the model, records it, and saves the model if it is the best so far. `Break` if the hook ends
    /// the run.
    fn validate(&mut self) -> Result<ControlFlow<()>, TrainError> {
        let (_, round) = self.progress();
        self.processor
            .process_train(LearnerEvent::EndEpoch(round.items_processed));
        let model = self.valid_model();
        let (statistics, measured) = self.measure(&model, &round)?;
        let train = std::mem::take(&mut self.state.since_validation);
        let flow = measured.flow;
        let validation = self.validation(&train, &statistics, measured.numbers);
        let replaces = self.state.replaces_model(&validation);
        self.watch.validated(&validation, &measured.samples);
        self.state.validations.push(validation);
        if replaces && let Some(checkpoints) = &self.strategy.checkpoints {
            checkpoints.save_model(&model.model)?;
        }
        Ok(flow)
    }

    /// The record of a validation.
    fn validation(&self, train: &Statistics, valid: &Statistics, numbers: Vec<f64>) -> Validation {
        let names = self.hook.names.iter().cloned();
        Validation {
            numbers: names.zip(numbers).collect(),
            ..Validation::new(&self.state, train, valid)
        }
    }

    /// Sums over the validation examples, and the hook's measurement; both are passed to the displays.
    fn measure(
        &mut self,
        model: &ValidModel<B, M>,
        round: &Progress,
    ) -> Result<(Statistics, Measurement), TrainError> {
        let measured = self.measure_batches(model, round);
        self.processor
            .process_valid(LearnerEvent::EndEpoch(round.items_processed));
        measured
    }

    /// The same, batch by batch.
    fn measure_batches(
        &mut self,
        model: &ValidModel<B, M>,
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
        model: &ValidModel<B, M>,
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
