//! Results on standard output, progress on standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::LoadError;
use crate::report::Document;
use crate::stop::Stop;

/// Commands that take less time than this show no progress.
const QUIET_FOR: Duration = Duration::from_secs(2);
/// Time between two updates.
const UPDATE_EVERY: Duration = Duration::from_secs(1);
/// Erases the line that the cursor is on.
const ERASE_LINE: &str = "\r\x1b[K";
/// Interval at which the end of a run is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Prints a report: with `json` in one line, else for a reader.
pub(super) fn print<T: Serialize>(json: bool, command: &str, report: T) -> Result<(), LoadError> {
    let document = Document::new(command, report);
    let text = if json {
        serde_json::to_string(&document)
    } else {
        serde_json::to_string_pretty(&document)
    };
    let text = text.map_err(|e| LoadError::io("writing JSON", e))?;
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // The work is done, although the reader of the report has gone.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|e| LoadError::io("writing to standard output", e)),
    }
}

/// Progress line on standard error, updated in place. Does nothing if standard
/// error is not a terminal.
pub(super) struct Progress {
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            shown: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Shows `line` if an update is due.
    pub(super) fn show(&mut self, line: impl FnOnce() -> String) {
        let due = self.shown.is_none_or(|at| at.elapsed() >= UPDATE_EVERY);
        if self.terminal && due && self.started.elapsed() >= QUIET_FOR {
            self.shown = Some(Instant::now());
            // The measurement continues even if the terminal is gone.
            let _ = write!(std::io::stderr(), "{ERASE_LINE}{}", line());
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(std::io::stderr(), "{ERASE_LINE}");
        }
    }
}

/// Waits for as long as `left` returns, or until `stop` is set, and shows
/// progress meanwhile. Without a terminal it sleeps the whole time.
pub(super) fn watch_for(stop: &Stop, left: impl Fn() -> Duration, line: impl Fn() -> String) {
    let mut progress = Progress::new();
    let every = if progress.terminal {
        UPDATE_EVERY
    } else {
        Duration::MAX
    };
    while !left().is_zero() && !stop.wait(left().min(every)) {
        progress.show(&line);
    }
    progress.clear();
}

/// Waits until `is_over`, or until `stop` is set, and shows progress meanwhile.
pub(super) fn watch(stop: &Stop, is_over: impl Fn() -> bool, line: impl Fn() -> String) {
    let mut progress = Progress::new();
    while !is_over() && !stop.wait(LOOK_EVERY) {
        progress.show(&line);
    }
    progress.clear();
}
