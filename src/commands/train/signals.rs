//! Ctrl-C and SIGTERM, which end a training run with a checkpoint.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use burn::train::Interrupter;

use crate::process::note;

/// A signal that ends a run after the current update. A second signal ends the program at once.
struct StopSignal {
    name: &'static str,
    /// The effect of a second signal, for the line that reports the first one.
    second: &'static str,
    /// The program's exit code: 128 plus the signal's number, as for a program that the signal has killed.
    exit_code: u8,
}

/// The exit code for the first signal; 0 before there is one.
static FIRST: AtomicU8 = AtomicU8::new(0);

/// The exit code of a run that a signal has ended; `None` if there was no signal.
pub fn exit_code() -> Option<u8> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|&code| code > 0)
}

static CTRL_C: StopSignal = StopSignal {
    name: "Ctrl-C",
    second: "press Ctrl-C again to stop at once",
    exit_code: 130,
};

static SIGTERM: StopSignal = StopSignal {
    name: "SIGTERM",
    second: "send SIGTERM again to stop at once",
    exit_code: 143,
};

/// Makes Ctrl-C and SIGTERM end a training run after the current update. A second signal of either kind ends the
/// program.
///
/// SIGHUP is not handled, so that `nohup` keeps a run alive when its terminal is closed. The feature `termination` of
/// `ctrlc` would handle SIGHUP together with SIGTERM, even if `nohup` has made the process ignore it.
pub fn stop_on_signals(interrupter: &Interrupter) {
    let ctrl_c = ctrlc::set_handler(CTRL_C.handler(interrupter.clone()));
    if let Err(error) = ctrl_c {
        CTRL_C.warn(&error);
    }
    let sigterm = on_sigterm(SIGTERM.handler(interrupter.clone()));
    if let Err(error) = sigterm {
        SIGTERM.warn(&error);
    }
}

impl StopSignal {
    fn handler(&'static self, interrupter: Interrupter) -> impl Fn() + Send + 'static {
        move || {
            if interrupter.should_stop() {
                // Skips the destructors of C++ libraries, which crash while other threads compute.
                signal_hook::low_level::exit(self.exit_code.into());
            }
            FIRST.store(self.exit_code, Ordering::SeqCst);
            note(format_args!("stopping after this update; {}", self.second));
            interrupter.stop(Some(self.name));
        }
    }

    fn warn(&self, error: &dyn std::error::Error) {
        note(format_args!(
            "warning: {} will end the program at once: {error}",
            self.name
        ));
    }
}

/// Calls `handler` at each SIGTERM, on a thread of its own.
#[cfg(unix)]
fn on_sigterm(handler: impl Fn() + Send + 'static) -> io::Result<()> {
    use signal_hook::{consts, iterator::Signals};

    let mut signals = Signals::new([consts::SIGTERM])?;
    let thread = std::thread::Builder::new().name("sigterm".into());
    thread.spawn(move || signals.forever().for_each(|_| handler()))?;
    Ok(())
}

/// Other systems have no SIGTERM.
#[cfg(not(unix))]
fn on_sigterm(_handler: impl Fn() + Send + 'static) -> io::Result<()> {
    Ok(())
}
