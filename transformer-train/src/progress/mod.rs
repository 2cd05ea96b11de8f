//! The displays of a run: Burn's TUI in a terminal, plain lines elsewhere.

mod plain_lines;
mod silent;
#[cfg(feature = "tui")]
mod terminal;
mod without_nan;

#[cfg(feature = "tui")]
use std::io::IsTerminal;

use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;

pub use plain_lines::PlainLines;
#[cfg(feature = "tui")]
pub(crate) use terminal::let_ctrl_c_through;
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
    /// The renderer of a run that `interrupter` ends.
    #[cfg_attr(not(feature = "tui"), expect(unused_variables, reason = "the TUI's"))]
    pub(crate) fn renderer(self, interrupter: &Interrupter) -> Box<dyn MetricsRenderer> {
        match self {
            #[cfg(feature = "tui")]
            Self::Auto if std::io::stdout().is_terminal() => terminal::tui(interrupter),
            Self::Auto | Self::Lines => Box::new(PlainLines::default()),
            Self::Silent => Box::new(silent::Silent),
        }
    }
}
