//! Source of states: the daemon or, without one, the running `plimsoll run`s
//! and the kernel's counters.

mod daemon;
mod runs;

use plimsoll_daemon::state::State;
use plimsoll_engine::runtime::RuntimeFolder;
use serde::Serialize;

use crate::error::Result;
use daemon::{Connection, Unanswered};
use runs::Runs;

/// Source of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The daemon.
    Daemon,
    /// The running `plimsoll run`s, because there is no daemon.
    Runs,
}

/// A state with its source.
#[derive(Debug, Clone)]
pub struct Update {
    /// Source of the state.
    pub asked: SourceKind,
    /// The state, with groups sorted by name.
    pub state: State,
}

/// Reads states.
pub struct Source {
    connection: Connection,
    runs: Runs,
    /// Whether the daemon has answered once; from then on no other source is
    /// used.
    daemon_was_there: bool,
}

impl Source {
    /// Creates a source without a connection.
    pub fn new() -> Self {
        let runtime = RuntimeFolder::of_this_user();
        Self {
            connection: Connection::new(&runtime),
            runs: Runs::new(runtime),
            daemon_was_there: false,
        }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// If the daemon does not answer, or no source can be read.
    pub fn read(&mut self) -> Result<Update> {
        match self.connection.state(None) {
            Ok(mut state) => {
                self.daemon_was_there = true;
                state.groups.sort_by(|one, two| one.name.cmp(&two.name));
                let asked = SourceKind::Daemon;
                Ok(Update { asked, state })
            }
            Err(Unanswered::Nobody(_)) if !self.daemon_was_there => Ok(Update {
                asked: SourceKind::Runs,
                state: self.runs.state()?,
            }),
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    /// Plan of one group: the mechanism that enforces each knob. `None` if the
    /// group no longer exists.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn plan(&mut self, group: &str) -> Result<Option<serde_json::Value>> {
        if !self.daemon_was_there {
            return Ok(self.runs.plan(group));
        }
        let state = self.connection.state(Some(group))?;
        let mut groups = state.groups.into_iter();
        Ok(groups
            .find(|found| found.name == group)
            .map(|found| found.plan))
    }
}
