//! Log lines for the journal, or for a terminal.
//!
//! Under systemd each line begins with its priority, as `sd-daemon(3)` has it.
//! A condition in a loop may recur a thousand times a second, so lines are limited by kind.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::name::printable;

/// Maximum number of lines of one kind within [`SPAN`].
const LINES_MAX: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);

/// Priority of a line, with its number in `syslog(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A desired state is not in force.
    Error = 3,
    /// An operator should look at it.
    Warning = 4,
    /// An event in the life of the daemon.
    Info = 6,
    /// An event of one group.
    Debug = 7,
}

/// Writes lines on standard error.
#[derive(Debug)]
pub struct Log {
    /// Whether the lines go to the journal, and so begin with their priority.
    for_journal: bool,
    /// The least priority of a line that is written; `None`: no line is.
    least: Option<Priority>,
    written: Mutex<HashMap<&'static str, Written>>,
}

#[derive(Debug)]
struct Written {
    since: Instant,
    lines: u32,
}

impl Log {
    #[must_use]
    pub fn new(least: Priority) -> Self {
        Self {
            least: Some(least),
            ..Self::silent()
        }
    }

    /// Creates a log that writes nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self {
            for_journal: std::env::var_os("JOURNAL_STREAM").is_some(),
            least: None,
            written: Mutex::default(),
        }
    }

    /// Writes a line. The number of lines is limited for each `kind`.
    pub fn write(&self, priority: Priority, kind: &'static str, text: &str) {
        if self.least.is_none_or(|least| priority as u8 > least as u8) {
            return;
        }
        let Some(suppressed) = self.admit(kind, Instant::now()) else {
            return;
        };
        if suppressed > 0 {
            self.put(
                priority,
                &format!("({suppressed} more lines about {kind} were left out)"),
            );
        }
        self.put(priority, text);
    }

    /// Returns the number of lines of a kind that were left out since the last one; `None`: this
    /// one is left out, too.
    fn admit(&self, kind: &'static str, now: Instant) -> Option<u32> {
        let mut written = self
            .written
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let of_kind = written.entry(kind).or_insert(Written {
            since: now,
            lines: 0,
        });
        let mut suppressed = 0;
        if now.saturating_duration_since(of_kind.since) >= SPAN {
            suppressed = of_kind.lines.saturating_sub(LINES_MAX);
            *of_kind = Written {
                since: now,
                lines: 0,
            };
        }
        of_kind.lines = of_kind.lines.saturating_add(1);
        (of_kind.lines <= LINES_MAX).then_some(suppressed)
    }

    fn put(&self, priority: Priority, text: &str) {
        let text = printable(&text.replace('\n', " "));
        // A log that cannot be written must not stop the daemon.
        let _ = if self.for_journal {
            writeln!(std::io::stderr(), "<{}>{text}", priority as u8)
        } else {
            writeln!(std::io::stderr(), "plimsoll: {text}")
        };
    }

    pub fn error(&self, kind: &'static str, text: &str) {
        self.write(Priority::Error, kind, text);
    }

    pub fn warning(&self, kind: &'static str, text: &str) {
        self.write(Priority::Warning, kind, text);
    }

    pub fn info(&self, kind: &'static str, text: &str) {
        self.write(Priority::Info, kind, text);
    }

    pub fn debug(&self, kind: &'static str, text: &str) {
        self.write(Priority::Debug, kind, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    #[test]
    fn lines_beyond_the_limit_of_a_kind_are_left_out_and_counted() {
        let log = Log::new(Priority::Debug);
        let start = os::now();
        let admitted = (0..100).filter(|_| log.admit("flood", start).is_some());
        assert_eq!(admitted.count(), LINES_MAX as usize);
        assert_eq!(log.admit("another", start), Some(0));
        let left_out = 100 - LINES_MAX;
        assert_eq!(log.admit("flood", start + SPAN), Some(left_out));
        assert_eq!(log.admit("flood", start + SPAN), Some(0));
    }
}
