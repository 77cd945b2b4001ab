//! How far something is that takes its time, on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// What takes less than this shows nothing.
const QUIET_FOR: Duration = Duration::from_secs(2);
/// Time between two updates of the line on a terminal.
const UPDATE_EVERY: Duration = Duration::from_millis(200);
/// Time between two lines elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Erases the line that the cursor is on.
const ERASE_LINE: &str = "\r\x1b[K";

/// On a terminal a line that is written over, else a line now and then.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    started: Instant,
    shown: Option<Instant>,
}

impl Progress {
    /// Begins now.
    pub fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            shown: None,
        }
    }

    /// Shows `line`, if it is time to.
    pub fn show(&mut self, line: impl FnOnce() -> String) {
        let every = if self.is_terminal {
            UPDATE_EVERY
        } else {
            LINE_EVERY
        };
        let due = self.shown.is_none_or(|at| at.elapsed() >= every);
        if !due || self.started.elapsed() < QUIET_FOR {
            return;
        }
        self.shown = Some(Instant::now());
        let line = line();
        // A lost terminal must not end the work.
        let _ = if self.is_terminal {
            write!(std::io::stderr(), "{ERASE_LINE}{line}")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
    }
}

impl Drop for Progress {
    /// What comes next begins on a line of its own.
    fn drop(&mut self) {
        if self.is_terminal && self.shown.is_some() {
            let _ = write!(std::io::stderr(), "{ERASE_LINE}");
        }
    }
}
