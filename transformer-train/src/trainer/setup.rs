//! All of a run but its model and its examples.

use std::path::{Path, PathBuf};
use std::time::Duration;

use burn::tensor::backend::AutodiffBackend;
use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;
#[cfg(feature = "text")]
use transformer_core::Tokenizers;

use crate::config::TrainingConfig;
use crate::objective::Trainable;
use crate::progress::{ProgressDisplay, Watching};
use crate::ranks::Ranks;
use crate::run_lock::RunLock;
use crate::validation::{HookError, ValidationHook};

/// The settings of a [`Trainer`](super::Trainer), each field set by the method of its name.
pub(super) struct Setup<B: AutodiffBackend, M: Trainable<B>> {
    pub config: TrainingConfig,
    /// At least one.
    pub devices: Vec<B::Device>,
    /// The processes that train together.
    pub ranks: Ranks,
    pub directory: Option<PathBuf>,
    /// The lock of the directory, where the caller has locked it.
    pub lock: Option<RunLock>,
    pub on_start: Option<Box<StartHook>>,
    #[cfg(feature = "text")]
    pub tokenizers: Option<Tokenizers>,
    pub resume: bool,
    pub max_duration: Option<Duration>,
    pub interrupter: Interrupter,
    pub display: ProgressDisplay,
    pub renderer: Option<Box<dyn MetricsRenderer>>,
    /// The measurements at each validation besides the loss.
    pub hook: ValidationHook<B::InnerBackend, M::InnerModule>,
    /// The observers and logs.
    pub watching: Watching,
}

/// Called with the run's directory.
type StartHook = dyn FnOnce(&Path) -> Result<(), HookError>;

impl<B: AutodiffBackend, M: Trainable<B>> Setup<B, M> {
    pub fn new(config: TrainingConfig, device: B::Device) -> Self {
        Self {
            config,
            devices: vec![device],
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

    /// The same run in a process that rank 0 leads: it computes its share of each update, and has no directory, no
    /// display and no validations.
    pub fn led(self) -> Self {
        Self {
            directory: None,
            lock: None,
            on_start: None,
            #[cfg(feature = "text")]
            tokenizers: None,
            resume: false,
            max_duration: None,
            display: ProgressDisplay::Silent,
            renderer: None,
            hook: ValidationHook::default(),
            watching: Watching::default(),
            ..self
        }
    }
}
