//! `Trainer`: the parts of a run, and the files that it leaves.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use burn::lr_scheduler::LrScheduler;
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{LearningRateMetric, Metric};
use burn::train::renderer::MetricsRenderer;
use burn::train::{Interrupter, Learner, SupervisedTraining, TrainingStrategy};
#[cfg(feature = "text")]
use transformer_core::Tokenizers;

use crate::checkpoint::{Checkpoint, Checkpoints, number_parameters};
use crate::config::TrainingConfig;
use crate::data::{ExampleSource, NoLoader, UpdateLoader, ValidLoader};
use crate::error::TrainError;
use crate::evaluate::{checked, in_memory};
use crate::metrics::{
    GradientNorm, SampleText, SkippedUpdates, Throughput, TokenMean, ValidationNumber,
};
use crate::moving_average::MovingAverage;
use crate::objective::{Objective, Trainable};
use crate::optimizer::PaperAdam;
use crate::progress::{
    ObserverError, ProgressDisplay, RunObserver, RunStart, Watching, WithoutNaN,
};
use crate::run_lock::RunLock;
use crate::run_state::{ExampleSet, RunState};
use crate::schedule::RateSchedule;
use crate::training_model::{TrainingModel, device};
use crate::update_loop::{Components, Ended, Start, StopReason, UpdateStrategy};
use crate::validation::{
    AverageOutcome, HookError, HookFunction, OWN_NUMBERS, Validation, ValidationContext,
    ValidationHook, ValidationMetrics,
};

/// A trained model and the record of its training.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trained<M> {
    /// The model after the last update, without gradients; with [`TrainingConfig::ema_decay`], that of the
    /// averaged weights.
    pub model: M,
    /// All validations, in order, with those before a resume.
    pub validations: Vec<Validation>,
    /// Updates made, with those before a resume and those that were skipped.
    pub updates: usize,
    /// Updates skipped, because their loss or gradients were not finite.
    pub skipped: usize,
    /// Why the run ended.
    pub stopped: StopReason,
    /// The mean of the last checkpoints ([`TrainingConfig::average_last`]); `None` if none was made: without a
    /// directory, in an interrupted run, or where there is only one checkpoint.
    pub average: Option<AverageOutcome>,
    /// The errors of observers that failed during the run, such as that of a log which could not be written
    /// any more. The run went on without them.
    pub observer_errors: Vec<ObserverError>,
}

/// A training run of any model that has an [`Objective`].
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
/// let trained = Trainer::new(model, run)
///     .display(ProgressDisplay::Silent)
///     .train(pairs.clone(), pairs)?;
/// assert_eq!(trained.updates, 4);
/// # Ok(())
/// # }
/// ```
pub struct Trainer<B: AutodiffBackend, M: Trainable<B>> {
    model: M,
    config: TrainingConfig,
    devices: Vec<B::Device>,
    directory: Option<PathBuf>,
    /// Of the directory, where the caller has taken it.
    lock: Option<RunLock>,
    on_start: Option<Box<StartHook>>,
    #[cfg(feature = "text")]
    tokenizers: Option<Tokenizers>,
    resume: bool,
    max_duration: Option<Duration>,
    interrupter: Interrupter,
    display: ProgressDisplay,
    renderer: Option<Box<dyn MetricsRenderer>>,
    hook: ValidationHook<B::InnerBackend, M::InnerModule>,
    watching: Watching,
}

impl<B: AutodiffBackend, M: Trainable<B>> Trainer<B, M> {
    /// A run of `model`, on its device.
    ///
    /// Parameters that need no gradient ([`Module::no_grad`](burn::module::Module::no_grad)) are
    /// frozen: training does not change them, and neither does resuming.
    pub fn new(model: M, config: TrainingConfig) -> Self {
        Self {
            devices: vec![device(&model)],
            model,
            config,
            directory: None,
            lock: None,
            on_start: None,
            #[cfg(feature = "text")]
            tokenizers: None,
            resume: false,
            max_duration: None,
            interrupter: Interrupter::new(),
            display: ProgressDisplay::Auto,
            renderer: None,
            hook: ValidationHook::default(),
            watching: Watching::default(),
        }
    }

    /// Trains on these devices: the first holds the model and the optimizer, each computes its share
    /// of an update's batches. By default, the model's own device.
    pub fn devices(mut self, devices: Vec<B::Device>) -> Self {
        if !devices.is_empty() {
            self.devices = devices;
        }
        self
    }

    /// Keeps the model of the best validation, by [`TrainingConfig::best_by`], in `directory`, and
    /// checkpoints below it. Without a directory nothing is written, and no checkpoints are averaged.
    ///
    /// Until the run ends, or its process does, other runs in the directory are refused, in this process
    /// and in others ([`TrainError::InUse`]), unless the file system has no locks.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self.lock = None;
        self
    }

    /// As [`directory`](Self::directory), in a directory that the caller has locked: one that writes there
    /// before the run begins.
    pub fn locked(mut self, lock: RunLock) -> Self {
        self.directory = Some(lock.directory().to_owned());
        self.lock = Some(lock);
        self
    }

    /// Calls `hook` with the directory once, when the run is sure to begin or to go on: the directory is locked,
    /// and its checkpoint, if the run is resumed, is one of this run's settings and data. No update has been
    /// made, and nothing but the tokenizers has been written. It is not called where a run is resumed that has ended
    /// ([`resume`](Self::resume)).
    ///
    /// Here a program writes what it keeps beside the model, so that a run that is refused overwrites
    /// nothing. Without a directory the hook is not called. An error of the hook ends the run.
    pub fn on_start(mut self, hook: impl FnOnce(&Path) -> Result<(), HookError> + 'static) -> Self {
        self.on_start = Some(Box::new(hook));
        self
    }

    /// Saves the tokenizers in the directory, beside the model, before the first update. They must fit
    /// the model ([`Objective::check_tokenizers`]), and be those of the run that is resumed.
    #[cfg(feature = "text")]
    pub fn tokenizers(mut self, tokenizers: &Tokenizers) -> Self {
        self.tokenizers = Some(tokenizers.clone());
        self
    }

    /// Continues from the newest checkpoint in the directory, if there is one: with its weights and their
    /// average, its optimizer's state, and the next examples. The run then ends as one that was not stopped,
    /// wherever it was stopped or killed: bit for bit, where the backend computes deterministically.
    ///
    /// Settings without an effect on the weights may change: when to validate, to write and keep checkpoints,
    /// what to compare validations by, and when to end, unless the learning rate depends on the end. The examples
    /// must be those of the run, also those to validate on, of which the best model is the best.
    ///
    /// A run that has ended, and has nothing left to do with these settings, is returned as it was: nothing is
    /// written, and observers do not start.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Ends the run after this time, however many updates it has made.
    pub fn max_duration(mut self, duration: Duration) -> Self {
        self.max_duration = Some(duration);
        self
    }

    /// Lets `interrupter` end the run after the current update; a checkpoint is then written.
    pub fn interrupter(mut self, interrupter: Interrupter) -> Self {
        self.interrupter = interrupter;
        self
    }

    /// Selects the display of progress; by default Burn's TUI in a terminal, plain lines elsewhere.
    pub fn display(mut self, display: ProgressDisplay) -> Self {
        self.display = display;
        self
    }

    /// Shows progress with a custom renderer of Burn's instead.
    pub fn renderer(mut self, renderer: impl MetricsRenderer + 'static) -> Self {
        self.renderer = Some(Box::new(renderer));
        self
    }

    /// Passes the run's numbers to an observer, too. Further calls add further observers.
    pub fn observer(mut self, observer: impl RunObserver + 'static) -> Self {
        self.watching.observers.push(Box::new(observer));
        self
    }

    /// Updates between two points of training that observers are given, and thus between two lines of the logs
    /// and two plain lines; by default 50.
    pub fn observe_every(mut self, updates: usize) -> Self {
        self.watching.every = updates;
        self
    }

    /// Logs the run as JSON lines in `log.jsonl` of the directory ([`JsonLog`](crate::JsonLog)).
    pub fn log_json(mut self, log: bool) -> Self {
        self.watching.json = log;
        self
    }

    /// Logs the run as TensorBoard's event files in `tensorboard` of the directory
    /// ([`TensorBoardLog`](crate::TensorBoardLog)).
    pub fn tensorboard(mut self, log: bool) -> Self {
        self.watching.tensorboard = log;
        self
    }

    /// Measures more at each validation: `hook` is called with the model and returns a number for each
    /// of `names`, in [`ControlFlow::Continue`], or in [`ControlFlow::Break`] to end the run there.
    ///
    /// The numbers appear beside the loss in the displays, and in [`Validation::numbers`]. By
    /// [`TrainingConfig::best_by`], one of them decides which model the directory keeps, and when
    /// [`TrainingConfig::patience`] is over. After an error of the hook the run can be resumed. A second call
    /// measures that, too, and so does [`validate_with`](Self::validate_with).
    ///
    /// ```
    /// # use burn_autodiff::Autodiff;
    /// # use burn_ndarray::NdArray;
    /// # use transformer_core::{MaxLength, Request, TransformerConfig, greedy};
    /// # use transformer_train::{ProgressDisplay, StopReason, TokenizedPair, Trainer, TrainingConfig};
    /// use std::ops::ControlFlow;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Default::default();
    /// # let config = TransformerConfig { d_model: 8, n_heads: 2, d_ff: 8, ..TransformerConfig::notebook_mini(10) };
    /// # let model = config.init::<Autodiff<NdArray>>(0, &device)?;
    /// # let pairs = vec![TokenizedPair { source: vec![3], target: vec![4] }];
    /// # let run = TrainingConfig { updates: 8, validate_every: 2, ..TrainingConfig::default() };
    /// let trained = Trainer::new(model, run)
    ///     # .display(ProgressDisplay::Silent)
    ///     .on_validation(["Mean length"], |at| {
    ///         let decoded = greedy(at.model, &[Request::new([3]), Request::new([4])], MaxLength::Tokens(9))?;
    ///         let length = decoded.iter().map(|h| h.tokens.len()).sum::<usize>() as f64 / 2.0;
    ///         // Good enough.
    ///         Ok(match at.statistics.accuracy() > 99.0 {
    ///             true => ControlFlow::Break([length]),
    ///             false => ControlFlow::Continue([length]),
    ///         })
    ///     })
    ///     .train(pairs.clone(), pairs)?;
    /// assert!(trained.validations[0].numbers.contains_key("Mean length"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_validation<const N: usize>(
        self,
        names: [&str; N],
        hook: impl FnMut(
            ValidationContext<'_, M::InnerModule>,
        ) -> Result<ControlFlow<[f64; N], [f64; N]>, HookError>
        + 'static,
    ) -> Self {
        self.validate_with(HookFunction {
            names: names.map(str::to_owned),
            function: hook,
        })
    }

    /// Measures more at each validation, as [`on_validation`](Self::on_validation) does: by decoding
    /// (`TextValidation`, with the feature `text`), or by [`ValidationMetrics`] of your own. The metrics check
    /// the model before the first update.
    pub fn validate_with(
        mut self,
        metrics: impl ValidationMetrics<B::InnerBackend, M::InnerModule> + 'static,
    ) -> Self {
        self.hook.add(metrics);
        self
    }

    /// Trains the model on `train`, a list of examples or another source of them, and validates it on `valid`.
    ///
    /// A thread reads the examples of the next few updates while the device computes.
    ///
    /// # Errors
    /// When the configuration, the tokenizers, the examples or the directory do not allow it, when a
    /// checkpoint cannot be written or read, when an example cannot be read, when an observer cannot start or a
    /// hook of the validations fails, when the loss or the gradients of [`TrainingConfig::skip_limit`] updates
    /// in a row are not finite, or the loss of a validation is not.
    pub fn train(
        self,
        train: impl ExampleSource<Example = <M as Objective<B>>::Example>,
        valid: Vec<<M as Objective<B>>::Example>,
    ) -> Result<Trained<M::InnerModule>, TrainError> {
        self.train_on(Arc::new(train), valid)
    }

    /// [`train`](Self::train), compiled once for all sources.
    fn train_on(
        mut self,
        train: Arc<dyn ExampleSource<Example = <M as Objective<B>>::Example>>,
        valid: Vec<<M as Objective<B>>::Example>,
    ) -> Result<Trained<M::InnerModule>, TrainError> {
        let deadline = self.max_duration.map(|duration| Instant::now() + duration);
        self.config.validate()?;
        self.watching.validate()?;
        self.check_names()?;
        #[cfg(feature = "text")]
        if let Some(tokenizers) = &self.tokenizers {
            self.model.check_tokenizers(tokenizers)?;
        }
        self.hook
            .check(&self.model.valid())
            .map_err(|source| TrainError::Metrics { source })?;
        let TrainingConfig {
            batch_tokens, seed, ..
        } = self.config;
        let sampler = checked(&self.model, &*train, batch_tokens, seed, "training")?;
        let train_set = ExampleSet {
            examples: sampler.len(),
            checksum: train.checksum(),
        };
        let valid_set = ExampleSet {
            examples: valid.len(),
            checksum: valid.checksum(),
        };
        let valid = in_memory(&self.model, valid, batch_tokens, seed, "validation")?;

        let checkpoints = self.open_directory()?;
        let checkpoint = Checkpoint {
            // Moved, not cloned: the optimizer changes weights in place if they have no other holder.
            model: self.model.fork(&self.devices[0]),
            average: None,
            optimizer: PaperAdam::new(self.config.clip_norm)
                .with_weight_decay(self.config.weight_decay),
            state: RunState::new(&self.config, train_set, valid_set),
        };
        let Checkpoint {
            model,
            average,
            optimizer,
            state,
        } = resumed(checkpoint, checkpoints.as_ref())?;
        if let Some(checkpoints) = &checkpoints
            && let Some(ended) = Ended::before(&state, checkpoints)?
        {
            return Ok(Trained {
                model: average.unwrap_or(model).valid(),
                validations: state.validations,
                updates: state.update,
                skipped: state.skipped,
                stopped: ended.stopped,
                average: ended.average,
                observer_errors: Vec::new(),
            });
        }
        if let (Some(hook), Some(directory)) = (self.on_start, &self.directory) {
            hook(directory.as_path()).map_err(|source| TrainError::Start { source })?;
        }
        let schedule = RateSchedule::new(&self.config, model.d_model());
        let schedule = schedule.load_record::<B>(state.update);
        let label_smoothing = self.config.label_smoothing;
        let numbered = |model: M| {
            number_parameters::<B, _>(TrainingModel::<B, M>::new(model, label_smoothing))
        };
        let average = self.config.ema_decay.map(|decay| {
            // The first weights are its beginning.
            let model = average.unwrap_or_else(|| model.clone());
            MovingAverage::new(decay, numbered(model).valid())
        });
        let model = numbered(model);
        let updates = UpdateLoader {
            source: train,
            sampler: Arc::new(sampler),
            batches_per_update: self.config.batches_per_update,
            first_update: state.update,
        };
        let lines = match self.renderer {
            Some(_) => None,
            None => self.display.lines(),
        };
        let start = RunStart::new(&state, deadline);
        let directory = self.directory.as_deref();
        let watch = self.watching.start(directory, lines, &start)?;
        let rounds = state.update / self.config.validate_every;
        let renderer = match self.renderer {
            Some(renderer) => renderer,
            None => self.display.renderer(&self.interrupter, rounds),
        };
        let training = displayed(ValidLoader(valid), &self.hook)
            .renderer(WithoutNaN(renderer))
            .with_interrupter(self.interrupter);

        let outcome = Arc::new(Mutex::new(None));
        let strategy = UpdateStrategy {
            config: self.config,
            devices: self.devices,
            updates,
            optimizer: optimizer.clone(),
            schedule: schedule.clone(),
            checkpoints,
            deadline,
            start: Mutex::new(Some(Start {
                state,
                hook: self.hook,
                average,
                watch,
            })),
            outcome: outcome.clone(),
        };
        let result = training
            .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)))
            .launch(Learner::new(model, optimizer, schedule));

        // Dropping the renderer restores the terminal.
        drop(result.renderer);
        let outcome = outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .expect("the strategy leaves an outcome")?;
        Ok(Trained {
            model: result.model.model,
            validations: outcome.state.validations,
            updates: outcome.state.update,
            skipped: outcome.state.skipped,
            stopped: outcome.stopped,
            average: outcome.average,
            observer_errors: outcome.observer_errors,
        })
    }

    /// Checks that the names differ, because displays identify numbers by their names, and that there is the
    /// one by which validations are compared.
    fn check_names(&self) -> Result<(), TrainError> {
        let means = [
            TokenMean::loss(),
            TokenMean::perplexity(),
            TokenMean::accuracy(),
        ];
        let mut names: HashSet<_> = means.iter().map(|mean| mean.name().to_string()).collect();
        names.insert(Throughput::new().name().to_string());
        names.insert(LearningRateMetric::new().name().to_string());
        names.insert(GradientNorm::new().name().to_string());
        names.insert(SkippedUpdates::new().name().to_string());
        names.extend((0..self.hook.samples).map(SampleText::title));
        names.extend(OWN_NUMBERS.map(str::to_owned));
        for name in &self.hook.names {
            if !names.insert(name.clone()) {
                return Err(TrainError::SameName { name: name.clone() });
            }
        }
        let own = OWN_NUMBERS.map(str::to_owned).into_iter();
        let named: Vec<_> = own.chain(self.hook.names.iter().cloned()).collect();
        let name = &self.config.best_by.number;
        match named.contains(name) {
            true => Ok(()),
            false => Err(TrainError::NoSuchNumber {
                name: name.clone(),
                named,
            }),
        }
    }

    /// The directory for checkpoints, with the tokenizers in it; `None` if nothing is to be saved.
    fn open_directory(&mut self) -> Result<Option<Checkpoints>, TrainError> {
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        let lock = match self.lock.take() {
            Some(lock) => lock,
            None => RunLock::acquire(directory)?,
        };
        let checkpoints = Checkpoints::open(lock, self.resume)?;
        #[cfg(feature = "text")]
        if let Some(tokenizers) = &self.tokenizers {
            match self.resume && Tokenizers::are_in(directory) {
                false => tokenizers.save(directory)?,
                true if tokenizers.have_vocabularies_of(&Tokenizers::load(directory)?) => {}
                true => return Err(TrainError::OtherTokenizers(directory.clone())),
            }
        }
        Ok(Some(checkpoints))
    }
}

/// The run as of its newest checkpoint; unchanged if there is none.
fn resumed<B: AutodiffBackend, M: Trainable<B>>(
    run: Running<B, M>,
    checkpoints: Option<&Checkpoints>,
) -> Result<Running<B, M>, TrainError> {
    let newest = checkpoints.map(Checkpoints::newest).transpose()?;
    let Some(newest) = newest.flatten() else {
        return Ok(run);
    };
    let restored = newest.restore::<B, _, _>(&run.state, run.model)?;
    Ok(Checkpoint {
        model: restored.model,
        average: restored.average,
        optimizer: run.optimizer.load_record(restored.optimizer),
        state: restored.state,
    })
}

/// Called with the run's directory.
type StartHook = dyn FnOnce(&Path) -> Result<(), HookError>;

type Running<B, M> = Checkpoint<M, PaperAdam<TrainingModel<B, M>, B>>;

/// Burn's part of a run, with its metrics, and those of the hook.
fn displayed<B: AutodiffBackend, M: Trainable<B>>(
    valid: ValidLoader<<M as Objective<B>>::Example>,
    hook: &ValidationHook<B::InnerBackend, M::InnerModule>,
) -> SupervisedTraining<Components<B, M>> {
    // Burn's file logger would write into this directory; the run's own record is in its checkpoints.
    let directory = PathBuf::new();
    let mut training = SupervisedTraining::new(directory, Arc::new(NoLoader), Arc::new(valid))
        .with_application_logger(None)
        .with_metric_logger(InMemoryMetricLogger::default())
        .metrics((
            TokenMean::loss(),
            TokenMean::perplexity(),
            TokenMean::accuracy(),
        ))
        .metric_train_numeric(Throughput::new())
        .metric_train_numeric(LearningRateMetric::new())
        .metric_train_numeric(GradientNorm::new())
        .metric_train(SkippedUpdates::new());
    for (index, name) in hook.names.iter().enumerate() {
        training = training.metric_valid_numeric(ValidationNumber::new(name, index));
    }
    for index in 0..hook.samples {
        training = training.metric_valid(SampleText::new(index));
    }
    training
}
