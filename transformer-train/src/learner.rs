//! One call trains a model: Burn's Learner with the paper's step.
//!
//! Burn's own loop steps the schedule once per batch, validates and saves once per epoch, and
//! resumes at an epoch's start. Here the unit is the *update*: one optimizer step, one step of the
//! schedule, however many batches its gradients come from. [`UpdateStrategy`] is that loop; the
//! Learner, its metrics, its renderers and its interrupter are Burn's.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use burn::data::dataloader::Progress;
use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::noam::NoamLrScheduler;
use burn::module::{AutodiffModule, Module};
use burn::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::LearningRateMetric;
use burn::train::{
    EventProcessorTraining, InferenceStep, Interrupter, ItemLazy, Learner, LearnerEvent,
    LearningComponentsMarker, SupervisedLearningStrategy, SupervisedTraining,
    SupervisedTrainingEventProcessor, TrainLoader, TrainOutput, TrainStep, TrainingComponents,
    TrainingItem, TrainingStrategy, ValidLoader,
};
use transformer_core::{Transformer, TransformerConfig};

use crate::batch::{BatchSampler, TokenizedPair};
use crate::checkpoint::{Checkpoint, Checkpoints, RunState, Validation, number_parameters};
use crate::config::TrainingConfig;
use crate::error::TrainError;
use crate::loader::{Batch, Source, Update, UpdateLoader, ValidLoader as ValidBatches};
use crate::loss::{LabelSmoothedCrossEntropy, TokenSums};
use crate::metrics::{DeviceStatistics, Statistics, Throughput, TokenMean};
use crate::optimizer::PaperAdam;
use crate::progress::{PlainLines, ProgressDisplay, Silent, let_ctrl_c_through};
use crate::schedule::noam_schedule;

/// A Transformer with the loss that it is trained by.
#[derive(Module, Debug)]
pub struct TrainingModel<B: Backend> {
    /// The model.
    pub transformer: Transformer<B>,
    label_smoothing: f64,
}

impl<B: Backend> TrainingModel<B> {
    /// Wraps a model for training or evaluation.
    pub fn new(transformer: Transformer<B>, label_smoothing: f64) -> Self {
        Self {
            transformer,
            label_smoothing,
        }
    }

    fn sums(&self, batch: Batch<B>) -> TokenSums<B> {
        let logits = self.transformer.forward(batch.source, batch.target);
        let [rows, tgt_len, vocab_size] = logits.dims();
        let pad_id = self.transformer.config().pad_id;
        LabelSmoothedCrossEntropy::new(self.label_smoothing, pad_id).sums(
            logits.reshape([rows * tgt_len, vocab_size]),
            batch.labels.reshape([rows * tgt_len]),
        )
    }
}

impl<B: AutodiffBackend> TrainStep for TrainingModel<B> {
    type Input = Update<B>;
    type Output = DeviceStatistics<B::InnerBackend>;

    /// The gradient of the mean loss over the update's tokens, whichever batches they stand in.
    fn step(&self, update: Update<B>) -> TrainOutput<Self::Output> {
        let mut accumulator = GradientsAccumulator::new();
        let mut statistics: Option<Self::Output> = None;
        for batch in update.batches {
            let sums = self.sums(batch);
            let gradients = (sums.loss.clone() / update.target_tokens as f64).backward();
            accumulator.accumulate(self, GradientsParams::from_grads(gradients, self));
            let batch_statistics = DeviceStatistics::new(sums.inner());
            statistics = Some(match statistics {
                Some(statistics) => statistics.add(batch_statistics),
                None => batch_statistics,
            });
        }
        TrainOutput {
            grads: accumulator.grads(),
            item: statistics.expect("an update has a batch"),
        }
    }
}

impl<B: Backend> InferenceStep for TrainingModel<B> {
    type Input = Batch<B>;
    type Output = DeviceStatistics<B>;

    fn step(&self, batch: Batch<B>) -> Self::Output {
        DeviceStatistics::new(self.sums(batch))
    }
}

/// The loss, perplexity and accuracy of a model on pairs, by teacher forcing.
///
/// # Errors
/// When a pair does not fit a batch or the model.
pub fn evaluate<B: Backend>(
    model: &Transformer<B>,
    pairs: Vec<TokenizedPair>,
    batch_tokens: usize,
    label_smoothing: f64,
    device: &B::Device,
) -> Result<Statistics, TrainError> {
    let source = source(pairs, batch_tokens, 0, model.config(), "evaluation")?;
    let loader: Arc<dyn burn::data::dataloader::DataLoader<B, Batch<B>>> = Arc::new(ValidBatches {
        source,
        device: device.clone(),
    });
    let model = TrainingModel::new(model.clone(), label_smoothing);
    let mut all = Statistics::default();
    for batch in loader.iter() {
        all.add(&InferenceStep::step(&model, batch).sync());
    }
    Ok(all)
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It has made all its updates.
    Updates,
    /// Its time is over.
    Time,
    /// It was interrupted.
    Interrupted,
}

/// A trained model and how it became one.
#[derive(Debug)]
pub struct Trained<B: Backend> {
    /// The model after the last update.
    pub model: Transformer<B>,
    /// Each validation, in order; those before a resume too.
    pub validations: Vec<Validation>,
    /// Updates made, those before a resume too.
    pub updates: usize,
    /// Why the run ended.
    pub stopped: StopReason,
}

/// A training run.
///
/// ```
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_core::TransformerConfig;
/// use transformer_train::{ProgressDisplay, TokenizedPair, Trainer, TrainingConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Default::default();
/// let config = TransformerConfig {
///     d_model: 16,
///     n_heads: 2,
///     d_ff: 32,
///     ..TransformerConfig::notebook_mini(10)
/// };
/// let model = config.init::<Autodiff<NdArray>>(0, &device)?;
/// let pairs: Vec<_> = (3..10)
///     .map(|token| TokenizedPair {
///         source: vec![token, token],
///         target: vec![token],
///     })
///     .collect();
///
/// let run = TrainingConfig {
///     updates: 4,
///     warmup: 2,
///     ..TrainingConfig::default()
/// };
/// let trained = Trainer::new(run, vec![device])
///     .display(ProgressDisplay::Silent)
///     .train(model, pairs.clone(), pairs)?;
/// assert_eq!(trained.updates, 4);
/// # Ok(())
/// # }
/// ```
pub struct Trainer<B: AutodiffBackend> {
    config: TrainingConfig,
    devices: Vec<B::Device>,
    directory: Option<PathBuf>,
    resume: bool,
    max_duration: Option<Duration>,
    interrupter: Interrupter,
    display: ProgressDisplay,
}

impl<B: AutodiffBackend> Trainer<B> {
    /// A run on the given devices: the first holds the model and the optimizer, each of them
    /// computes its share of an update's batches.
    pub fn new(config: TrainingConfig, devices: Vec<B::Device>) -> Self {
        Self {
            config,
            devices,
            directory: None,
            resume: false,
            max_duration: None,
            interrupter: Interrupter::new(),
            display: ProgressDisplay::Auto,
        }
    }

    /// Keeps the model of the lowest validation loss in `directory`, and checkpoints below it.
    /// Without a directory nothing is written.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Continues from the newest checkpoint in the directory, if there is one.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Ends the run after this time, however many updates it has made.
    pub fn max_duration(mut self, duration: Duration) -> Self {
        self.max_duration = Some(duration);
        self
    }

    /// Lets `interrupter` end the run after the update at hand; a checkpoint is then written.
    pub fn interrupter(mut self, interrupter: Interrupter) -> Self {
        self.interrupter = interrupter;
        self
    }

    /// Shows progress in this way; by default Burn's TUI in a terminal, plain lines elsewhere.
    pub fn display(mut self, display: ProgressDisplay) -> Self {
        self.display = display;
        self
    }

    /// Trains `model` on `train` and validates it on `valid`.
    ///
    /// # Errors
    /// When the configuration, the pairs or the directory do not allow it, when a checkpoint cannot
    /// be written or read, or when the loss is no longer a number.
    ///
    /// # Panics
    /// Without a device.
    pub fn train(
        self,
        model: Transformer<B>,
        train: Vec<TokenizedPair>,
        valid: Vec<TokenizedPair>,
    ) -> Result<Trained<B::InnerBackend>, TrainError> {
        let started = Instant::now();
        let config = self.config;
        config.validate()?;
        let device = self.devices[0].clone();
        let model_config = model.config().clone();
        let label_smoothing = config.label_smoothing;
        let optimizer = PaperAdam::new(config.clip_norm);
        let train = source(
            train,
            config.batch_tokens,
            config.seed,
            &model_config,
            "training",
        )?;
        let valid = source(
            valid,
            config.batch_tokens,
            config.seed,
            &model_config,
            "validation",
        )?;

        let mut state = RunState::new(&config, &train.pairs);
        let mut transformer = model.fork(&device);
        let checkpoints = match self.directory {
            Some(directory) => Some(Checkpoints::open(
                &directory,
                self.resume,
                config.keep_checkpoints,
            )?),
            None => None,
        };
        let mut optimizer = optimizer;
        if let Some(checkpoint) = checkpoints.as_ref().and_then(Checkpoints::newest) {
            let restored = checkpoint.restore(&state, &model_config, &device)?;
            transformer = restored.model;
            state = restored.state;
            optimizer = optimizer.load_record(restored.optimizer);
        }
        let mut schedule = noam_schedule(&config, model_config.d_model);
        schedule = schedule.load_record::<B>(state.update);

        let loader = UpdateLoader {
            source: train,
            batches_per_update: config.batches_per_update,
            first_update: state.update,
            device: device.clone(),
        };
        let valid_loader = ValidBatches {
            source: valid,
            device: device.clone(),
        };
        let outcome = Arc::new(Mutex::new(None));
        let strategy = UpdateStrategy {
            config,
            devices: self.devices,
            optimizer: optimizer.clone(),
            schedule: schedule.clone(),
            checkpoints,
            deadline: self.max_duration.map(|duration| started + duration),
            start: Mutex::new(Some(state)),
            outcome: outcome.clone(),
        };
        let model = number_parameters(TrainingModel::new(transformer, label_smoothing));
        let training = SupervisedTraining::new(
            // Burn's file logger would write below this; the run's own record is in its checkpoints.
            PathBuf::new(),
            Arc::new(loader),
            Arc::new(valid_loader),
        )
        .with_application_logger(None)
        .with_metric_logger(InMemoryMetricLogger::default())
        .metrics((
            TokenMean::loss(),
            TokenMean::perplexity(),
            TokenMean::accuracy(),
        ))
        .metric_train_numeric(Throughput::new())
        .metric_train_numeric(LearningRateMetric::new())
        .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)))
        .with_interrupter(self.interrupter);
        let training = match self.display {
            // Burn shows its TUI by itself.
            ProgressDisplay::Auto if std::io::stdout().is_terminal() => training,
            ProgressDisplay::Auto | ProgressDisplay::Lines => {
                training.renderer(PlainLines::default())
            }
            ProgressDisplay::Silent => training.renderer(Silent),
        };
        let result = training.launch(Learner::new(model, optimizer, schedule));

        // The terminal is the caller's again once the renderer is gone.
        drop(result.renderer);
        let outcome = outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .expect("the strategy leaves an outcome")?;
        Ok(Trained {
            model: result.model.transformer,
            validations: outcome.state.validations,
            updates: outcome.state.update,
            stopped: outcome.stopped,
        })
    }
}

/// The pairs of a run, once they are known to fit the batches and the model.
fn source(
    pairs: Vec<TokenizedPair>,
    batch_tokens: usize,
    seed: u64,
    config: &TransformerConfig,
    part: &'static str,
) -> Result<Source, TrainError> {
    for (index, pair) in pairs.iter().enumerate() {
        let length = pair.src_len().max(pair.tgt_len());
        if let Some(max_len) = config.max_len().filter(|&max_len| length > max_len) {
            return Err(TrainError::TooLong {
                part,
                index,
                length,
                max_len,
            });
        }
        for (tokens, vocab_size) in [
            (&pair.source, config.src_vocab_size),
            (&pair.target, config.tgt_vocab_size),
        ] {
            if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab_size) {
                return Err(TrainError::UnknownToken {
                    part,
                    index,
                    token,
                    vocab_size,
                });
            }
        }
    }
    let sampler = BatchSampler::new(&pairs, batch_tokens, seed)
        .map_err(|source| TrainError::Batches { part, source })?;
    Ok(Source {
        pairs: Arc::new(pairs),
        sampler: Arc::new(sampler),
        config: config.clone(),
    })
}

type Components<B> =
    LearningComponentsMarker<B, NoamLrScheduler, TrainingModel<B>, PaperAdam<TrainingModel<B>, B>>;

/// What a run leaves behind.
struct Outcome {
    state: RunState,
    stopped: StopReason,
}

/// The training loop, by updates.
struct UpdateStrategy<B: AutodiffBackend> {
    config: TrainingConfig,
    devices: Vec<B::Device>,
    optimizer: PaperAdam<TrainingModel<B>, B>,
    schedule: NoamLrScheduler,
    checkpoints: Option<Checkpoints>,
    deadline: Option<Instant>,
    start: Mutex<Option<RunState>>,
    outcome: Arc<Mutex<Option<Result<Outcome, TrainError>>>>,
}

impl<B: AutodiffBackend> SupervisedLearningStrategy<Components<B>> for UpdateStrategy<B> {
    fn fit(
        &self,
        components: TrainingComponents<Components<B>>,
        learner: Learner<Components<B>>,
        train: TrainLoader<Components<B>>,
        valid: ValidLoader<Components<B>>,
        _starting_epoch: usize,
    ) -> (
        TrainingModel<B>,
        SupervisedTrainingEventProcessor<Components<B>>,
    ) {
        let start = self
            .start
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The learner would keep a copy of the model through each step, and its weights could not be
        // changed in place.
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
            state: start.expect("a strategy runs once"),
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

const MODEL: &str = "the optimizer gives the model back";

/// Updates after which the loss is read back and checked.
const CHECK_EVERY: usize = 50;

/// A run under way.
struct Run<'a, B: AutodiffBackend> {
    strategy: &'a UpdateStrategy<B>,
    /// `None` while the optimizer has it.
    model: Option<TrainingModel<B>>,
    optimizer: PaperAdam<TrainingModel<B>, B>,
    schedule: NoamLrScheduler,
    valid: ValidLoader<Components<B>>,
    processor: SupervisedTrainingEventProcessor<Components<B>>,
    interrupter: Interrupter,
    state: RunState,
}

impl<B: AutodiffBackend> Run<'_, B> {
    /// Makes updates until the run ends; validates and saves as it goes.
    fn updates(&mut self, train: TrainLoader<Components<B>>) -> Result<StopReason, TrainError> {
        let config = &self.strategy.config;
        let mut unread: Option<DeviceStatistics<B::InnerBackend>> = None;
        let mut updates = train.iter();
        let mut clock = Instant::now();
        loop {
            let stopped = self.stop_reason();
            let due = self.state.update > self.state.validated_update()
                && self.state.update.is_multiple_of(config.validate_every);
            let last = stopped.is_some();
            if (due || last || self.state.update.is_multiple_of(CHECK_EVERY))
                && let Some(statistics) = unread.take()
            {
                self.read_back(statistics)?;
            }
            if due || last {
                self.state.seconds += clock.elapsed().as_secs_f64();
                self.pause(stopped)?;
                clock = Instant::now();
            }
            if let Some(reason) = stopped {
                return Ok(reason);
            }
            let update = updates.next().expect("updates never end");
            let statistics = self.update(update);
            unread = Some(match unread {
                Some(unread) => unread.add(statistics),
                None => statistics,
            });
        }
    }

    /// The model as it is now, without gradients.
    fn valid_model(&self) -> TrainingModel<B::InnerBackend> {
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

    /// One update: gradients from every device, one step of the schedule, one of the optimizer.
    fn update(&mut self, update: Update<B>) -> DeviceStatistics<B::InnerBackend> {
        let devices = &self.strategy.devices;
        let main = &devices[0];
        let number = self.state.update + 1;
        // Dropout is a function of the seed and the update, so that a resumed run draws the same.
        for device in devices {
            B::seed(device, mix(self.strategy.config.seed, number as u64));
        }
        let model = self.model.take().expect(MODEL);
        let mut accumulator = GradientsAccumulator::new();
        let mut statistics: Option<DeviceStatistics<B::InnerBackend>> = None;
        for (device, part) in devices.iter().zip(update.deal(devices)) {
            let output = if device == main {
                TrainStep::step(&model, part)
            } else {
                TrainStep::step(&model.clone().fork(device), part)
            };
            accumulator.accumulate(&model, output.grads.to_device(main, &model));
            statistics = Some(match statistics {
                Some(statistics) => statistics.add(output.item),
                None => output.item,
            });
        }
        let learning_rate = self.schedule.step();
        let model = self
            .optimizer
            .step(learning_rate, model, accumulator.grads());
        self.model = Some(model);
        self.state.update = number;

        let statistics = statistics.expect("an update has a batch");
        let (progress, round) = self.progress();
        let_ctrl_c_through();
        self.processor
            .process_train(LearnerEvent::ProcessedItem(TrainingItem::new(
                statistics.clone(),
                progress,
                round,
                Some(number),
                Some(learning_rate),
            )));
        statistics
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

    fn read_back(
        &mut self,
        statistics: DeviceStatistics<B::InnerBackend>,
    ) -> Result<(), TrainError> {
        let statistics = statistics.sync();
        self.check(&statistics)?;
        self.state.since_validation.add(&statistics);
        Ok(())
    }

    /// Ends a run whose loss is no longer a number: nothing it could save would be of use.
    fn check(&self, statistics: &Statistics) -> Result<(), TrainError> {
        if statistics.loss.is_finite() {
            return Ok(());
        }
        Err(TrainError::Diverged {
            update: self.state.update,
            loss: statistics.mean_loss(),
        })
    }

    /// Validates where training may go on or is complete, and saves.
    fn pause(&mut self, stopped: Option<StopReason>) -> Result<(), TrainError> {
        let changed = self.state.update > self.state.validated_update();
        // An interruption is answered at once; the next run validates.
        if changed && stopped != Some(StopReason::Interrupted) {
            let validation = self.validate()?;
            let best = self.state.is_best(&validation);
            self.state.validations.push(validation);
            if best && let Some(checkpoints) = &self.strategy.checkpoints {
                checkpoints.save_model(&self.valid_model().transformer)?;
            }
        }
        let Some(checkpoints) = &self.strategy.checkpoints else {
            return Ok(());
        };
        let model = self.valid_model().transformer;
        if !checkpoints.has_model() {
            checkpoints.save_model(&model)?;
        }
        checkpoints.save(&Checkpoint {
            model,
            optimizer: Optimizer::<TrainingModel<B>, B>::to_record(&self.strategy.optimizer),
            state: self.state.clone(),
        })
    }

    fn validate(&mut self) -> Result<Validation, TrainError> {
        let (_, round) = self.progress();
        self.processor
            .process_train(LearnerEvent::EndEpoch(round.items_processed));
        let model = self.valid_model();
        let mut all = Statistics::default();
        let mut batches = self.valid.iter();
        let mut iteration = 0;
        while let Some(batch) = batches.next() {
            iteration += 1;
            let statistics = InferenceStep::step(&model, batch);
            all.add(&statistics.clone().sync());
            self.processor
                .process_valid(LearnerEvent::ProcessedItem(TrainingItem::new(
                    statistics,
                    batches.progress(),
                    round.clone(),
                    Some(iteration),
                    None,
                )));
        }
        self.processor
            .process_valid(LearnerEvent::EndEpoch(round.items_processed));
        self.check(&all)?;
        let train = std::mem::take(&mut self.state.since_validation);
        Ok(Validation::new(
            self.state.update,
            self.state.seconds,
            &train,
            &all,
        ))
    }
}

/// One number from two, such that neighbours share nothing (the finaliser of SplitMix64).
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
