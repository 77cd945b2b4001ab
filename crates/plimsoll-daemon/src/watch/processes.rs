//! New and changed processes.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::connector::{Connector, QUEUE_BYTES};
use super::scan::Scan;

/// Changes of processes since the last call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessChanges {
    /// Processes that started, run another program, or changed their user or name, each once.
    /// Some may have ended already.
    pub appeared: Vec<i32>,
    /// Events were lost: all processes have to be read again.
    pub lost: bool,
}

/// Watches all processes of the host.
#[derive(Debug)]
pub struct ProcessWatch {
    source: Source,
    /// The reason for a scan in place of events.
    refused: Option<String>,
}

#[derive(Debug)]
enum Source {
    Connector(Connector),
    Scan(Scan),
}

impl ProcessWatch {
    /// Begins to watch. Present processes are not reported:
    /// [`processes::all`](crate::processes::all), called afterwards, has them, and all that
    /// start in between.
    #[must_use]
    pub fn start() -> Self {
        match Connector::start(QUEUE_BYTES) {
            Ok(connector) => Self {
                source: Source::Connector(connector),
                refused: None,
            },
            Err(error) => Self::scanning(&error),
        }
    }

    fn scanning(error: &std::io::Error) -> Self {
        Self {
            source: Source::Scan(Scan::start(Instant::now())),
            refused: Some(error.to_string()),
        }
    }

    /// The source of changes, in words.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self.source {
            Source::Connector(_) => "the kernel's process events",
            Source::Scan(_) => {
                "a list of all processes every 100 ms, which shows new ones but not those that \
                 change program or user"
            }
        }
    }

    /// The reason why the kernel's process events are not used, if so.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The file that becomes readable when there are changes. `None`: see
    /// [`ProcessWatch::due`].
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Connector(connector) => Some(connector.as_fd()),
            Source::Scan(_) => None,
        }
    }

    /// When to read changes. `None`: see [`ProcessWatch::fd`].
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match &self.source {
            Source::Connector(_) => None,
            Source::Scan(scan) => Some(scan.due()),
        }
    }

    /// Reads changes since the last call, without waiting. [`ProcessWatch::fd`] and
    /// [`ProcessWatch::due`] may change: a socket that fails is replaced by a scan.
    pub fn changes(&mut self) -> ProcessChanges {
        let mut changes = ProcessChanges::default();
        let mut reported = HashSet::new();
        let mut report = |pid| {
            if reported.insert(pid) {
                changes.appeared.push(pid);
            }
        };
        match &mut self.source {
            Source::Connector(connector) => match connector.read(&mut report) {
                Ok(is_lost) => changes.lost = is_lost,
                Err(error) => {
                    *self = Self::scanning(&error);
                    changes.lost = true;
                }
            },
            Source::Scan(scan) => scan.read(Instant::now(), &mut report),
        }
        changes
    }
}
