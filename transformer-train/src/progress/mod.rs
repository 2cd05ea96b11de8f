//! Displays and logs of a run: Burn's TUI in a terminal, plain lines elsewhere; JSON lines and TensorBoard event
//! files; and the interface for further observers.

mod burn_display;
mod json_log;
mod log_file;
mod observer;
mod plain_lines;
mod tensorboard;
#[cfg(feature = "tui")]
mod terminal;
mod time_left;
mod watch;

pub use crate::error::ObserverError;
pub use crate::printable::printable;

#[cfg(feature = "tui")]
use std::io::IsTerminal;

use burn::train::Interrupter;

pub(crate) use burn_display::{BurnDisplay, displayed_names};
pub use json_log::{JsonLog, LOG_FILE, RunLog};
pub use observer::{RunObserver, RunStart, SkippedUpdate, TrainingPoint};
pub use plain_lines::PlainLines;
pub use tensorboard::TensorBoardLog;
pub(crate) use watch::{Watch, Watching};

/// How a run shows its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressDisplay {
    /// Burn's TUI if standard output is a terminal and the feature `tui` is on, otherwise plain lines.
    #[default]
    Auto,
    /// Plain lines.
    Lines,
    /// Nothing.
    Silent,
}

impl ProgressDisplay {
    #[cfg(feature = "tui")]
    fn is_tui(self) -> bool {
        self == Self::Auto && std::io::stdout().is_terminal()
    }

    /// The observer that displays a run, if any: `interrupter` ends the run, the first `intervals` between
    /// validations were made before, and validations have these metrics and samples.
    #[cfg_attr(not(feature = "tui"), expect(unused_variables, reason = "TUI only"))]
    pub(crate) fn observer(
        self,
        interrupter: &Interrupter,
        intervals: usize,
        numbers: Vec<String>,
        samples: usize,
    ) -> Option<Box<dyn RunObserver>> {
        #[cfg(feature = "tui")]
        if self.is_tui() {
            let renderer = terminal::tui(interrupter, intervals);
            return Some(Box::new(BurnDisplay::new(renderer, numbers, samples)));
        }
        match self {
            Self::Silent => None,
            Self::Auto | Self::Lines => Some(Box::<PlainLines>::default()),
        }
    }
}
