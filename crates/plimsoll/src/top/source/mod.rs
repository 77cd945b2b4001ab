//! Source of states: the owner or, without one, the kernel's counters.

mod daemon;
mod kernel;

use plimsoll_daemon::state::State;
use plimsoll_engine::runtime::RuntimeFolder;
use serde::Serialize;

use crate::error::Result;
use daemon::{Connection, Unanswered};
use kernel::Kernel;

/// Source of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The owner.
    Daemon,
    /// The kernel, because no owner runs; there are no groups.
    Kernel,
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
    kernel: Kernel,
}

impl Source {
    /// Creates a source without a connection.
    pub fn new() -> Self {
        Self {
            connection: Connection::new(&RuntimeFolder::of_this_user()),
            kernel: Kernel::new(),
        }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// If the owner does not answer, or the kernel's counters cannot be read.
    pub fn read(&mut self) -> Result<Update> {
        match self.connection.state(None) {
            Ok(mut state) => {
                state.groups.sort_by(|one, two| one.name.cmp(&two.name));
                let asked = SourceKind::Daemon;
                Ok(Update { asked, state })
            }
            Err(Unanswered::Nobody(_)) => Ok(Update {
                asked: SourceKind::Kernel,
                state: self.kernel.state()?,
            }),
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    /// Plan of one group: the mechanism that enforces each knob. `None` if the
    /// group no longer exists.
    ///
    /// # Errors
    /// If the owner does not answer.
    pub fn plan(&mut self, group: &str) -> Result<Option<serde_json::Value>> {
        let state = match self.connection.state(Some(group)) {
            Err(Unanswered::Nobody(_)) => return Ok(None),
            other => other?,
        };
        let mut groups = state.groups.into_iter();
        Ok(groups
            .find(|found| found.name == group)
            .map(|found| found.plan))
    }
}
