//! `Trainer`: the interface of a run.
//!
//! | file | has |
//! |---|---|
//! | `setup` | all of a run but its model and its examples |
//! | `steps` | a run, step by step |
//! | `joining` | the same run in every process |
//! | `checks` | errors that are found before anything is read or written |
//! | `data` | the examples, in batches |
//! | `learner` | Burn's Learner, whose strategy is the training loop (`update_loop`) |
//! | `trained` | the result |

mod checks;
mod data;
mod joining;
mod learner;
mod setup;
mod steps;
mod trained;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::backend::AutodiffBackend;
use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;
#[cfg(feature = "text")]
use transformer_core::Tokenizers;

use self::setup::Setup;
use crate::config::TrainingConfig;
use crate::data::ExampleSource;
use crate::error::TrainError;
use crate::objective::{Objective, Trainable};
use crate::progress::{ProgressDisplay, RunObserver};
use crate::ranks::Ranks;
use crate::run_lock::RunLock;
use crate::training_model::device;
use crate::validation::{HookError, HookFunction, ValidationContext, ValidationMetrics};

pub use self::trained::Trained;

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
///
/// # Random numbers
/// Dropout is drawn from Burn's generator, of which a process has one for each backend; each update seeds it. So a
/// second run in the same process, or your own code that draws from it beside a run (`Tensor::random`), changes the
/// dropout of the run, which then cannot be repeated bit by bit. Everything else has generators of its own: models may
/// be made by a seed, loaded and decoded, also by sampling, beside a run.
pub struct Trainer<B: AutodiffBackend, M: Trainable<B>> {
    model: M,
    setup: Setup<B, M>,
}

impl<B: AutodiffBackend, M: Trainable<B>> Trainer<B, M> {
    /// A run of `model`, on its device.
    ///
    /// Parameters that need no gradient ([`Module::no_grad`](burn::module::Module::no_grad)) are
    /// frozen: training does not change them, and neither does resuming.
    pub fn new(model: M, config: TrainingConfig) -> Self {
        Self {
            setup: Setup::new(config, device(&model)),
            model,
        }
    }

    /// Trains on these devices: the first holds the model and the optimizer, each computes its share
    /// of an update's batches. By default, the model's own device.
    pub fn devices(mut self, devices: Vec<B::Device>) -> Self {
        if !devices.is_empty() {
            self.setup.devices = devices;
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
        self.setup.ranks = ranks.clone();
        self
    }

    /// Keeps the model of the best validation, by [`TrainingConfig::best_by`], in `directory`, and
    /// checkpoints below it. Without a directory nothing is written, and no checkpoints are averaged.
    ///
    /// Until the run ends, or its process does, other runs in the directory are refused, in this process
    /// and in others ([`TrainError::InUse`]), unless the file system has no locks.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.setup.directory = Some(directory.into());
        self.setup.lock = None;
        self
    }

    /// As [`directory`](Self::directory), in a directory that the caller has locked: one that writes there
    /// before the run begins.
    pub fn locked(mut self, lock: RunLock) -> Self {
        self.setup.directory = Some(lock.directory().to_owned());
        self.setup.lock = Some(lock);
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
        self.setup.on_start = Some(Box::new(hook));
        self
    }

    /// Saves the tokenizers in the directory, beside the model, before the first update. They must fit
    /// the model ([`Objective::check_tokenizers`]), and be those of the run that is resumed.
    #[cfg(feature = "text")]
    pub fn tokenizers(mut self, tokenizers: &Tokenizers) -> Self {
        self.setup.tokenizers = Some(tokenizers.clone());
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
        self.setup.resume = resume;
        self
    }

    /// Ends the run after this time, however many updates it has made.
    pub fn max_duration(mut self, duration: Duration) -> Self {
        self.setup.max_duration = Some(duration);
        self
    }

    /// Lets `interrupter` end the run after the current update; a checkpoint is then written.
    pub fn interrupter(mut self, interrupter: Interrupter) -> Self {
        self.setup.interrupter = interrupter;
        self
    }

    /// Selects the display of progress; by default Burn's TUI in a terminal, plain lines elsewhere.
    pub fn display(mut self, display: ProgressDisplay) -> Self {
        self.setup.display = display;
        self
    }

    /// Shows progress with a custom renderer of Burn's instead.
    pub fn renderer(mut self, renderer: impl MetricsRenderer + 'static) -> Self {
        self.setup.renderer = Some(Box::new(renderer));
        self
    }

    /// Passes the run's numbers to an observer, too. Further calls add further observers.
    pub fn observer(mut self, observer: impl RunObserver + 'static) -> Self {
        self.setup.watching.observers.push(Box::new(observer));
        self
    }

    /// Updates between two points of training that observers are given, and thus between two lines of the logs
    /// and two plain lines; by default 50.
    pub fn observe_every(mut self, updates: usize) -> Self {
        self.setup.watching.every = updates;
        self
    }

    /// Logs the run as JSON lines in `log.jsonl` of the directory ([`JsonLog`](crate::JsonLog)).
    pub fn log_json(mut self, log: bool) -> Self {
        self.setup.watching.json = log;
        self
    }

    /// Logs the run as TensorBoard's event files in `tensorboard` of the directory
    /// ([`TensorBoardLog`](crate::TensorBoardLog)).
    pub fn tensorboard(mut self, log: bool) -> Self {
        self.setup.watching.tensorboard = log;
        self
    }

    /// Measures more at each validation: `hook` is called with the model and returns a number for each
    /// of `names`, in [`ControlFlow::Continue`], or in [`ControlFlow::Break`] to end the run there.
    ///
    /// The numbers appear beside the loss in the displays, and in
    /// [`Validation::numbers`](crate::Validation::numbers). By [`TrainingConfig::best_by`], one of them decides
    /// which model the directory keeps, and when [`TrainingConfig::patience`] is over. After an error of the hook
    /// the run can be resumed. A second call measures that, too, and so does
    /// [`validate_with`](Self::validate_with).
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
        self.setup.hook.add(metrics);
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
        self.setup.train(self.model, Arc::new(train), valid)
    }
}
