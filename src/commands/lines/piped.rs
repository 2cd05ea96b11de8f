//! The lines of a pipe, read by a thread, so that the program can process the lines that have arrived without waiting
//! for the next one.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

use transformer_train::data::TextLines;

use super::Line;

/// The maximum number of lines that are read ahead; each may have 1 MiB.
const AHEAD: usize = 16;

/// The lines of a pipe, in order.
pub(super) struct PipedLines(Receiver<Result<Line, String>>);

impl PipedLines {
    /// Starts to read a text.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn new(mut text: TextLines) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(AHEAD);
        let read = move || {
            while let Some(line) = Line::read(&mut text).transpose() {
                let is_last = line.is_err();
                if sender.send(line).is_err() || is_last {
                    break;
                }
            }
        };
        thread::Builder::new().spawn(read)?;
        Ok(Self(receiver))
    }

    /// The next line; `None` at the end of the text, or if the next line has not arrived by `until`. Without `until`,
    /// it waits for the line.
    ///
    /// # Errors
    /// Why the text cannot be read any further.
    pub(super) fn next(&self, until: Option<Instant>) -> Result<Option<Line>, String> {
        let received = match until {
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.0.recv_timeout(left).ok()
            }
            None => self.0.recv().ok(),
        };
        received.transpose()
    }
}
