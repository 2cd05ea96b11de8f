//! Burn's TUI, and the terminal that it controls.

use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;
use burn::train::renderer::tui::TuiMetricsRendererWrapper;

/// Burn's TUI. Its estimate of the time left leaves out the first `intervals` between validations, made before the
/// run was resumed.
pub(super) fn tui(interrupter: &Interrupter, intervals: usize) -> Box<dyn MetricsRenderer> {
    let interrupter = interrupter.clone();
    Box::new(TuiMetricsRendererWrapper::new(interrupter, Some(intervals)))
}

/// Lets Ctrl-C end the run although Burn's TUI has put the terminal into raw mode, in which it would be
/// a key press that is not read.
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
            // Without it, `q` still ends the run.
            let _ = tcsetattr(&terminal, OptionalActions::Now, &modes);
        }
    }
}
