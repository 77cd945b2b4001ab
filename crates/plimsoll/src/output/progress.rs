//! Progress of long operations on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Operations that take less time than this show nothing.
const QUIET_FOR: Duration = Duration::from_secs(2);
/// Time between two updates of the line on a terminal.
const UPDATE_EVERY: Duration = Duration::from_millis(200);
/// Time between two lines on other outputs.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Erases the line that the cursor is on.
const ERASE_LINE: &str = "\r\x1b[K";

/// Progress line: updated in place on a terminal, an occasional line elsewhere.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    started: Instant,
    shown: Option<Instant>,
}

impl Progress {
    pub fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            shown: None,
        }
    }

    /// Shows `line` if an update is due.
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
        if self.is_terminal {
            say(&format!("{ERASE_LINE}{line}"));
        } else {
            say(&format!("{line}\n"));
        }
    }

    /// Prints a line that stays.
    pub fn keep(&mut self, line: &str) {
        self.erase();
        say(&format!("{line}\n"));
    }

    fn erase(&mut self) {
        if self.shown.take().is_some() && self.is_terminal {
            say(ERASE_LINE);
        }
    }
}

impl Drop for Progress {
    /// Ends the line, so that later output starts on a new one.
    fn drop(&mut self) {
        self.erase();
    }
}

/// Prints a text; the work continues even if the terminal is gone.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
