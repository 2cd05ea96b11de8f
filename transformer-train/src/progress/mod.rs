//! Displays and logs of a run: Burn's TUI in a terminal, plain lines elsewhere; JSON lines and TensorBoard's
//! event files; and the observers by which a user adds others.

mod json_log;
mod log_file;
mod observer;
mod plain_lines;
mod silent;
mod tensorboard;
#[cfg(feature = "tui")]
mod terminal;
mod time_left;
mod watch;
mod without_nan;

use std::io::IsTerminal;

use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;

pub use json_log::{JsonLog, LOG_FILE, RunLog};
pub use observer::{ObserverError, RunObserver, RunStart, SkippedUpdate, TrainingPoint};
pub use plain_lines::PlainLines;
pub use tensorboard::TensorBoardLog;
#[cfg(feature = "tui")]
pub(crate) use terminal::let_ctrl_c_through;
pub(crate) use watch::{Watch, Watching};
pub(crate) use without_nan::WithoutNaN;

/// How a run shows its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressDisplay {
    /// Burn's TUI where standard output is a terminal and the feature `tui` is on, plain lines
    /// otherwise.
    #[default]
    Auto,
    /// Plain lines.
    Lines,
    /// Nothing.
    Silent,
}

impl ProgressDisplay {
    fn is_tui(self) -> bool {
        cfg!(feature = "tui") && self == Self::Auto && std::io::stdout().is_terminal()
    }

    /// The renderer of a run that `interrupter` ends, and whose first `rounds` were made before. Plain lines
    /// are no renderer.
    #[cfg_attr(not(feature = "tui"), expect(unused_variables, reason = "the TUI's"))]
    pub(crate) fn renderer(
        self,
        interrupter: &Interrupter,
        rounds: usize,
    ) -> Box<dyn MetricsRenderer> {
        #[cfg(feature = "tui")]
        if self.is_tui() {
            return terminal::tui(interrupter, rounds);
        }
        Box::new(silent::Silent)
    }

    /// The observer that prints plain lines, if they are the display.
    pub(crate) fn lines(self) -> Option<PlainLines> {
        (self != Self::Silent && !self.is_tui()).then(PlainLines::default)
    }
}
