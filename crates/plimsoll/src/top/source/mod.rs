//! Where the states come from: the daemon; without one, the groups of
//! running `plimsoll run`s and the kernel's own counters.

mod daemon;
mod runs;

use plimsoll_daemon::state::State;
use plimsoll_engine::runtime::RuntimeFolder;
use serde::Serialize;

use crate::error::Result;
use daemon::{Connection, Unanswered};
use runs::Runs;

/// Who was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// The daemon.
    Daemon,
    /// Every running `plimsoll run`: there is no daemon.
    Runs,
}

/// One look at everything.
#[derive(Debug, Clone)]
pub struct Look {
    /// Who was asked.
    pub asked: Asked,
    /// What is there. Groups are sorted by name.
    pub state: State,
}

/// Gives states.
pub struct Source {
    connection: Connection,
    runs: Runs,
    /// The daemon has answered once: from then on nobody else will do.
    daemon_was_there: bool,
}

impl Source {
    /// Nobody is asked yet.
    pub fn new() -> Self {
        let runtime = RuntimeFolder::of_this_user();
        Self {
            connection: Connection::new(&runtime),
            runs: Runs::new(runtime),
            daemon_was_there: false,
        }
    }

    /// Looks at everything.
    ///
    /// # Errors
    /// When the daemon does not answer, or nothing can be read at all.
    pub fn look(&mut self) -> Result<Look> {
        match self.connection.state(None) {
            Ok(mut state) => {
                self.daemon_was_there = true;
                state.groups.sort_by(|one, two| one.name.cmp(&two.name));
                let asked = Asked::Daemon;
                Ok(Look { asked, state })
            }
            Err(Unanswered::Nobody(_)) if !self.daemon_was_there => Ok(Look {
                asked: Asked::Runs,
                state: self.runs.state()?,
            }),
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    /// What enforces the knobs of one group: the items of its plan. `None`:
    /// it is gone.
    ///
    /// # Errors
    /// When the daemon does not answer.
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
