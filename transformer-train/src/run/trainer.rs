//! `Trainer`: the interface of a run.

mod joining;
mod start;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;
#[cfg(feature = "text")]
use transformer_core::Tokenizers;

use crate::config::TrainingConfig;
use crate::data::ExampleSource;
use crate::error::{ObserverError, TrainError};
use crate::objective::gradients::device;
use crate::objective::{Objective, Trainable};
use crate::optim::adam::Adam;
use crate::optim::schedule::RateSchedule;
use crate::progress::{ProgressDisplay, RunObserver, Watching};
use crate::ranks::Ranks;
use crate::run::lock::RunLock;
use crate::run::update_loop::{Outcome, StopReason};
use crate::validation::{
    AverageOutcome, HookError, HookFunction, Validation, ValidationContext, ValidationHook,
    ValidationMetrics,
};

/// A training run of any model that has an [`Objective`].
///
/// ```
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_core::TransformerConfig;
/// use transformer_train::{Trainer, TrainingConfig};
/// use transformer_train::data::TokenizedPair;
/// use transformer_train::progress::ProgressDisplay;
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
///
/// # Random numbers
/// Dropout is drawn from Burn's generator, of which a process has one for each backend; each update seeds it. So a
/// second run in the same process, or your own code that draws from it beside a run (`Tensor::random`), changes the
/// dropout of the run, which then cannot be repeated bit by bit. Everything else has generators of its own: models may
/// be made by a seed, loaded and decoded, also by sampling, beside a run.
pub struct Trainer<B, M, O = Adam<M, B>, S = RateSchedule>
where
    B: AutodiffBackend,
    M: Trainable<B>,
{
    model: M,
    optimizer: O,
    schedule: Box<ScheduleOf<S>>,
    config: TrainingConfig,
    /// At least one.
    devices: Vec<B::Device>,
    /// The processes that train together.
    ranks: Ranks,
    directory: Option<PathBuf>,
    /// The lock of the directory, where the caller has locked it.
    lock: Option<RunLock>,
    on_start: Option<Box<StartHook>>,
    #[cfg(feature = "text")]
    tokenizers: Option<Tokenizers>,
    resume: bool,
    max_duration: Option<Duration>,
    interrupter: Interrupter,
    display: ProgressDisplay,
    renderer: Option<Box<dyn MetricsRenderer>>,
    /// The measurements at each validation besides the loss.
    hook: ValidationHook<B::InnerBackend, M::InnerModule>,
    /// The observers and logs.
    watching: Watching,
}

/// The schedule of a run, for a model of this width.
type ScheduleOf<S> = dyn Fn(&TrainingConfig, Option<usize>) -> Result<S, TrainError>;

/// Called with the run's directory.
type StartHook = dyn FnOnce(&Path) -> Result<(), HookError>;

impl<B: AutodiffBackend, M: Trainable<B>> Trainer<B, M> {
    /// A run of `model`, on its device, with the paper's optimizer and schedule (§5.3).
    ///
    /// Parameters that need no gradient ([`Module::no_grad`](burn::module::Module::no_grad)) are
    /// frozen: training does not change them, and neither does resuming.
    pub fn new(model: M, config: TrainingConfig) -> Self {
        Self {
            optimizer: config.adam().init(),
            schedule: Box::new(RateSchedule::of),
            devices: vec![device::<B>(&model)],
            model,
            config,
            ranks: Ranks::alone(),
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
}

impl<B, M, O, S> Trainer<B, M, O, S>
where
    B: AutodiffBackend,
    M: Trainable<B>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler + 'static,
{
    /// Trains with another optimizer of Burn's, before its first step: [`Adam`] with other constants, Burn's own, or
    /// yours. The configuration's weight decay is the default optimizer's alone; clipping is the run's with any.
    ///
    /// A run is resumed with the optimizer that it began with, of which a checkpoint has the state but not the
    /// settings.
    ///
    /// ```
    /// # use burn_autodiff::Autodiff;
    /// # use burn_ndarray::NdArray;
    /// # use transformer_core::TransformerConfig;
    /// # use transformer_train::{Trainer, TrainingConfig};
    /// # use transformer_train::data::TokenizedPair;
    /// # use transformer_train::progress::ProgressDisplay;
    /// use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
    /// use burn::optim::SgdConfig;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = TransformerConfig { d_model: 8, n_heads: 2, d_ff: 8, ..TransformerConfig::notebook_mini(10) };
    /// # let model = config.init::<Autodiff<NdArray>>(0, &Default::default())?;
    /// # let pairs = vec![TokenizedPair { source: vec![3], target: vec![4] }];
    /// # let run = TrainingConfig { updates: 4, ..TrainingConfig::default() };
    /// let trained = Trainer::new(model, run)
    ///     # .display(ProgressDisplay::Silent)
    ///     .optimizer(SgdConfig::new().init())
    ///     .schedule(CosineAnnealingLrSchedulerConfig::new(0.1, 100).init()?)
    ///     .train(pairs.clone(), pairs)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn optimizer<P: Optimizer<M, B> + 'static>(self, optimizer: P) -> Trainer<B, M, P, S> {
        self.with(|_, schedule| (optimizer, schedule))
    }

    /// Trains with another schedule of Burn's, before its first step, in place of the configuration's. In a run that is
    /// resumed it is stepped as often as updates were made before, and so must be the same.
    pub fn schedule<R: LrScheduler + 'static>(self, schedule: R) -> Trainer<B, M, O, R> {
        let schedule: Box<ScheduleOf<R>> = Box::new(move |_, _| Ok(schedule.clone()));
        self.with(|optimizer, _| (optimizer, schedule))
    }

    /// The same run with another optimizer or another schedule.
    fn with<P, R>(
        self,
        replace: impl FnOnce(O, Box<ScheduleOf<S>>) -> (P, Box<ScheduleOf<R>>),
    ) -> Trainer<B, M, P, R> {
        let (optimizer, schedule) = replace(self.optimizer, self.schedule);
        Trainer {
            optimizer,
            schedule,
            model: self.model,
            config: self.config,
            devices: self.devices,
            ranks: self.ranks,
            directory: self.directory,
            lock: self.lock,
            on_start: self.on_start,
            #[cfg(feature = "text")]
            tokenizers: self.tokenizers,
            resume: self.resume,
            max_duration: self.max_duration,
            interrupter: self.interrupter,
            display: self.display,
            renderer: self.renderer,
            hook: self.hook,
            watching: self.watching,
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

    /// Trains together with other processes, each of which makes a `Trainer` of the same model, settings and examples.
    /// They make the updates of one process: the batches of an update, [`TrainingConfig::batches_per_update`] in all,
    /// are dealt out to them, and their gradients are added up.
    ///
    /// Rank 0 leads: it alone has the directory, validates, displays and logs, and these settings of the others are
    /// ignored. All begin with its weights, and all end together, whichever of them is interrupted. The [`Trained`] of
    /// another rank has neither validations nor an average.
    ///
    /// A process that fails must end the others, as `Mpi::run` does with the feature `mpi`.
    pub fn ranks(mut self, ranks: &Ranks) -> Self {
        self.ranks = ranks.clone();
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
    /// Here a program writes its own files beside the model, so that a run that is refused overwrites nothing. Without
    /// a directory the hook is not called. An error of the hook ends the run.
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
    /// Settings without an effect on the weights may change: when to validate, to write and keep checkpoints, by which
    /// criterion to compare validations, and when to end, unless the learning rate depends on the end. The examples
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

    /// Logs the run as JSON lines in `log.jsonl` of the directory ([`JsonLog`](crate::progress::JsonLog)).
    pub fn log_json(mut self, log: bool) -> Self {
        self.watching.json = log;
        self
    }

    /// Logs the run as TensorBoard's event files in `tensorboard` of the directory
    /// ([`TensorBoardLog`](crate::progress::TensorBoardLog)).
    pub fn tensorboard(mut self, log: bool) -> Self {
        self.watching.tensorboard = log;
        self
    }

    /// Measures more at each validation, as [`validate_with`](Self::validate_with) does, by a function: `hook` is called
    /// with the model and returns a number for each of `names`, in [`ControlFlow::Continue`], or in
    /// [`ControlFlow::Break`] to end the run there.
    ///
    /// ```
    /// # use burn_autodiff::Autodiff;
    /// # use burn_ndarray::NdArray;
    /// # use transformer_core::{Request, TransformerConfig};
    /// # use transformer_core::decoding::{MaxLength, greedy};
    /// # use transformer_train::{Trainer, TrainingConfig};
    /// # use transformer_train::data::TokenizedPair;
    /// # use transformer_train::progress::ProgressDisplay;
    /// # use transformer_train::run::StopReason;
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
    ///     .validate_with_fn(["Mean length"], |at| {
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
    pub fn validate_with_fn<const N: usize>(
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

    /// Measures more at each validation: by decoding (`TextValidation`, with the feature `text`), or by
    /// [`ValidationMetrics`] of your own. The metrics check the model before the first update. A second call measures
    /// that, too.
    ///
    /// The numbers appear beside the loss in the displays, and in
    /// [`Validation::numbers`](crate::validation::Validation::numbers). By [`TrainingConfig::best_by`], one of them decides
    /// which model the directory keeps, and when [`TrainingConfig::patience`] is over. After an error of the metrics
    /// the run can be resumed.
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
        self.run(Arc::new(train), valid)
    }
}

/// A trained model and the record of its training.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trained<M> {
    /// The model after the last update, without gradients; with [`TrainingConfig::ema_decay`], that of the averaged
    /// weights.
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

impl<M> Trained<M> {
    fn new(model: M, outcome: Outcome) -> Self {
        let Outcome {
            state,
            stopped,
            average,
            observer_errors,
        } = outcome;
        Self {
            model,
            validations: state.validations,
            updates: state.update,
            skipped: state.skipped,
            stopped,
            average,
            observer_errors,
        }
    }
}
