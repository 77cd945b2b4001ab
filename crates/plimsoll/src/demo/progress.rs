//! Progress of the phases on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

/// Erases the line that the cursor is on.
const ERASE_LINE: &str = "\r\x1b[K";

/// Progress on standard error: on a terminal a line that is updated in place, else a line per
/// phase. No colours.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    count: usize,
    number: usize,
    name: String,
    is_shown: bool,
}

impl Progress {
    pub fn new(count: usize) -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            count,
            number: 0,
            name: String::new(),
            is_shown: false,
        }
    }

    /// Shows the start of the next phase.
    pub fn begin(&mut self, name: &str) {
        self.number += 1;
        self.name = format!("{}/{}  {name:<36}", self.number, self.count);
        if !self.is_terminal {
            say(&format!("{}\n", self.name.trim_end()));
        }
    }

    pub fn update(&mut self, left: Duration, busy_ratio: f64) {
        if self.is_terminal {
            let (left, busy) = (left.as_secs_f64().ceil(), 100.0 * busy_ratio);
            say(&format!(
                "{ERASE_LINE}{}  {left:>2.0} s left   machine {busy:>3.0} % busy",
                self.name
            ));
            self.is_shown = true;
        }
    }

    /// Shows the end of the phase; on a terminal its result stays.
    pub fn end(&mut self, result: &str) {
        if self.is_terminal {
            say(&format!("{ERASE_LINE}{}  {result}\n", self.name));
            self.is_shown = false;
        }
    }
}

impl Drop for Progress {
    /// Ends the line, so that an error message starts on a new one.
    fn drop(&mut self) {
        if self.is_shown {
            say(ERASE_LINE);
        }
    }
}

/// Prints a text; the demo continues even if the terminal is gone.
fn say(text: &str) {
    let mut errors = std::io::stderr().lock();
    let _ = errors.write_all(text.as_bytes());
    let _ = errors.flush();
}
