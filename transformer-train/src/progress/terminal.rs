//! Burn's TUI, and the terminal that it controls.

use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;
use burn::train::renderer::tui::TuiMetricsRendererWrapper;

/// Burn's TUI. Its estimate of the remaining time ignores the first `intervals` between validations, which were
/// made before the run was resumed.
pub(super) fn tui(interrupter: &Interrupter, intervals: usize) -> Box<dyn MetricsRenderer> {
    let interrupter = interrupter.clone();
    Box::new(TuiMetricsRendererWrapper::new(interrupter, Some(intervals)))
}

/// Lets Ctrl-C end the run. Burn's TUI puts the terminal into raw mode, in which Ctrl-C would be an unread key
/// press.
pub(super) fn let_ctrl_c_through() {
    #[cfg(unix)]
    {
        use rustix::termios::{LocalModes, OptionalActions, isatty, tcgetattr, tcsetattr};
        let terminal = std::io::stdin();
        if !isatty(&terminal) {
            return;
        }
        if let Ok(mut modes) = tcgetattr(&terminal)
            && !modes.local_modes.contains(LocalModes::ISIG)
        {
            modes.local_modes |= LocalModes::ISIG;
            // If this fails, `q` still ends the run.
            let _ = tcsetattr(&terminal, OptionalActions::Now, &modes);
        }
    }
}
