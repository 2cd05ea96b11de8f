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

/// A training run of any model with an [`Objective`].
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
/// Dropout is drawn from Burn's generator, of which a process has one per backend; each update seeds it. A second
/// run in the same process, or your own code that draws from it during a run (`Tensor::random`), therefore changes
/// the run's dropout, and the run cannot be repeated bit for bit. Everything else has its own generators: during a
/// run, you can initialize models from a seed, load them and decode, also by sampling.
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
    /// The lock of the directory, if the caller has locked it.
    lock: Option<RunLock>,
    on_start: Option<Box<StartHook>>,
    #[cfg(feature = "text")]
    tokenizers: Option<Tokenizers>,
    resume: bool,
    max_duration: Option<Duration>,
    interrupter: Interrupter,
    display: ProgressDisplay,
    renderer: Option<Box<dyn MetricsRenderer>>,
    /// Measurements at each validation, in addition to the loss.
    hook: ValidationHook<B::InnerBackend, M::InnerModule>,
    /// The observers and logs.
    watching: Watching,
}

/// The schedule of a run, for a model with this width.
type ScheduleOf<S> = dyn Fn(&TrainingConfig, Option<usize>) -> Result<S, TrainError>;

/// Called with the run's directory.
type StartHook = dyn FnOnce(&Path) -> Result<(), HookError>;

impl<B: AutodiffBackend, M: Trainable<B>> Trainer<B, M> {
    /// A run of `model`, on its device, with the paper's optimizer and schedule (§5.3).
    ///
    /// Parameters that need no gradient ([`Module::no_grad`](burn::module::Module::no_grad)) are frozen: neither
    /// training nor resuming changes them.
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
    /// Uses another optimizer, in its initial state: [`Adam`] with other constants, one of Burn's, or your own.
    /// The configuration's weight decay applies only to the default optimizer; its clipping applies to all.
    ///
    /// A run must be resumed with the optimizer that it started with: a checkpoint contains the optimizer's state,
    /// but not its settings.
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

    /// Uses another schedule of Burn's, in its initial state, in place of the configuration's. A resumed run steps
    /// it once per earlier update, so it must be the same schedule.
    pub fn schedule<R: LrScheduler + 'static>(self, schedule: R) -> Trainer<B, M, O, R> {
        let schedule: Box<ScheduleOf<R>> = Box::new(move |_, _| Ok(schedule.clone()));
        self.with(|optimizer, _| (optimizer, schedule))
    }

    /// The same run with another optimizer and schedule.
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

    /// Trains on these devices: the first holds the model and the optimizer, and each computes some of an update's
    /// batches. By default, the model's own device. Not for wgpu: Burn 0.21 cannot copy its tensors from one device to
    /// another, and goes on with wrong values.
    pub fn devices(mut self, devices: Vec<B::Device>) -> Self {
        if !devices.is_empty() {
            self.devices = devices;
        }
        self
    }

    /// Trains together with other processes, each of which creates a `Trainer` of the same model, settings and
    /// examples. Their updates are those of a single process: the batches of an update,
    /// [`TrainingConfig::batches_per_update`] in total, are distributed, and the gradients are summed.
    ///
    /// Rank 0 leads: it alone has the directory, validates, displays and logs; these settings are ignored in the
    /// others. All start with rank 0's weights, and all end together, whichever of them is interrupted. In other
    /// ranks, [`Trained`] has neither validations nor an average; if a resumed run had already ended, it has the initial
    /// weights there.
    ///
    /// A process that fails must end the others, as `Mpi::run` does with the feature `mpi`.
    pub fn ranks(mut self, ranks: &Ranks) -> Self {
        self.ranks = ranks.clone();
        self
    }

    /// Saves the model of the best validation, by [`TrainingConfig::best_by`], in `directory`, and checkpoints
    /// below it. Without a directory, nothing is written and no checkpoints are averaged.
    ///
    /// Until the run or its process ends, other runs in the directory are refused, in this process and in others
    /// ([`TrainError::InUse`]), unless the file system has no locks.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self.lock = None;
        self
    }

    /// Like [`directory`](Self::directory), for a directory that the caller has locked to write to it before the
    /// run.
    pub fn locked(mut self, lock: RunLock) -> Self {
        self.directory = Some(lock.directory().to_owned());
        self.lock = Some(lock);
        self
    }

    /// Calls `hook` once with the directory, when the run is certain to start or resume: the directory is locked,
    /// and the checkpoint of a resumed run matches this run's settings and data. No update has been made, and only
    /// the tokenizers have been written. The hook is not called if the resumed run has already ended
    /// ([`resume`](Self::resume)).
    ///
    /// In this hook, a program writes its own files beside the model, so that a refused run overwrites nothing.
    /// Without a directory, the hook is not called. An error of the hook ends the run.
    pub fn on_start(mut self, hook: impl FnOnce(&Path) -> Result<(), HookError> + 'static) -> Self {
        self.on_start = Some(Box::new(hook));
        self
    }

    /// Saves the tokenizers beside the model before the first update. They must fit the model
    /// ([`Objective::check_tokenizers`]), and equal those of the run that is resumed.
    #[cfg(feature = "text")]
    pub fn tokenizers(mut self, tokenizers: &Tokenizers) -> Self {
        self.tokenizers = Some(tokenizers.clone());
        self
    }

    /// Resumes from the newest checkpoint in the directory, if there is one: with its weights and their average,
    /// its optimizer's state, and the next examples. Wherever the run was stopped or killed, its result is the
    /// same as without the interruption, bit for bit if the backend is deterministic. Only the validation that a time
    /// limit causes would not have been made: its model is kept if it is the best.
    ///
    /// Settings that do not affect the weights may change: when to validate, when to write and keep checkpoints,
    /// by which criterion to compare validations, and when to end, unless the learning rate depends on the end.
    /// The training examples must be the same, and so must the validation examples, by which the best model was
    /// chosen.
    ///
    /// If the run has ended and these settings leave nothing to do, its result is returned: nothing is written,
    /// and observers do not start.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Ends the run after this time, regardless of its updates.
    pub fn max_duration(mut self, duration: Duration) -> Self {
        self.max_duration = Some(duration);
        self
    }

    /// Lets `interrupter` end the run after the current update, with a checkpoint.
    pub fn interrupter(mut self, interrupter: Interrupter) -> Self {
        self.interrupter = interrupter;
        self
    }

    /// Selects the progress display; by default Burn's TUI in a terminal, plain lines elsewhere.
    pub fn display(mut self, display: ProgressDisplay) -> Self {
        self.display = display;
        self
    }

    /// Displays progress with a custom Burn renderer instead.
    pub fn renderer(mut self, renderer: impl MetricsRenderer + 'static) -> Self {
        self.renderer = Some(Box::new(renderer));
        self
    }

    /// Adds an observer, which receives the run's metrics.
    pub fn observer(mut self, observer: impl RunObserver + 'static) -> Self {
        self.watching.observers.push(Box::new(observer));
        self
    }

    /// Number of updates between two points of training, and so between two lines of the logs and of the plain
    /// display. Default: 50.
    pub fn observe_every(mut self, updates: usize) -> Self {
        self.watching.every = updates;
        self
    }

    /// Logs the run as JSON lines in the directory's `log.jsonl` ([`JsonLog`](crate::progress::JsonLog)).
    pub fn log_json(mut self, log: bool) -> Self {
        self.watching.json = log;
        self
    }

    /// Logs the run as TensorBoard event files in the directory's `tensorboard`
    /// ([`TensorBoardLog`](crate::progress::TensorBoardLog)).
    pub fn tensorboard(mut self, log: bool) -> Self {
        self.watching.tensorboard = log;
        self
    }

    /// Adds metrics to each validation, like [`validate_with`](Self::validate_with), computed by a function:
    /// `hook` is called with the model and returns one value per name in `names`, in [`ControlFlow::Continue`], or
    /// in [`ControlFlow::Break`] to end the run.
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

    /// Adds metrics to each validation: by decoding (`TextValidation`, with the feature `text`), or your own
    /// [`ValidationMetrics`]. They check the model before the first update. Further calls add further metrics.
    ///
    /// The values appear beside the loss in the displays, and in
    /// [`Validation::numbers`](crate::validation::Validation::numbers). [`TrainingConfig::best_by`] can select one
    /// of them to choose the saved model and to control early stopping ([`TrainingConfig::patience`]). After an
    /// error of the metrics, the run can be resumed.
    pub fn validate_with(
        mut self,
        metrics: impl ValidationMetrics<B::InnerBackend, M::InnerModule> + 'static,
    ) -> Self {
        self.hook.add(metrics);
        self
    }

    /// Trains the model on `train`, a list or another source of examples, and validates it on `valid`.
    ///
    /// A background thread reads the examples of the next few updates while the device computes.
    ///
    /// # Errors
    /// - The configuration, the tokenizers, the examples or the directory do not fit the run.
    /// - A checkpoint cannot be written or read, or an example cannot be read.
    /// - An observer cannot start, or a validation hook fails.
    /// - The loss or the gradients of [`TrainingConfig::skip_limit`] consecutive updates are not finite, or the
    ///   loss of a validation is not.
    pub fn train(
        self,
        train: impl ExampleSource<Example = <M as Objective<B>>::Example>,
        valid: Vec<<M as Objective<B>>::Example>,
    ) -> Result<Trained<M::InnerModule>, TrainError> {
        self.run(Arc::new(train), valid)
    }
}

/// A trained model, and the record of its training.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trained<M> {
    /// The model after the last update, without gradients; with [`TrainingConfig::ema_decay`], with the averaged
    /// weights.
    pub model: M,
    /// All validations, in order, including those before a resume.
    pub validations: Vec<Validation>,
    /// Number of updates, including skipped ones and those before a resume.
    pub updates: usize,
    /// Number of updates skipped because their loss or gradients were not finite.
    pub skipped: usize,
    /// Why the run ended.
    pub stopped: StopReason,
    /// The average of the last checkpoints ([`TrainingConfig::average_last`]); `None` if there is none: without a
    /// directory, in an interrupted run, or with only one checkpoint.
    pub average: Option<AverageOutcome>,
    /// The errors of observers that failed during the run, such as a log that could no longer be written. The run
    /// continued without them.
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
