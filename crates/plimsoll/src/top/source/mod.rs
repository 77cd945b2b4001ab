//! Source of states: the owner or, without one, the kernel's counters.

mod daemon;
mod kernel;

use plimsoll_daemon::control::client::ClientError;
use plimsoll_daemon::state::State;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::sample::TaskRates;
use serde::Serialize;

use crate::error::{Result, Unanswered};
use daemon::Connection;
use kernel::Kernel;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The owner.
    Daemon,
    /// The kernel, because no owner runs; there are no groups.
    Kernel,
    /// The kernel, because the owner does not answer this user.
    Denied,
}

#[derive(Debug, Clone)]
pub struct Update {
    /// Source of the state.
    pub asked: SourceKind,
    /// The state, with groups sorted by name.
    pub state: State,
}

/// Details of one group, which are requested for that group alone.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// Plan: the mechanism that enforces each knob.
    pub plan: serde_json::Value,
    /// Usage rates of the group's tasks; `None`: the group has no cap.
    pub task_rates: Option<TaskRates>,
}

pub struct Source {
    connection: Connection,
    kernel: Kernel,
}

impl Source {
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
            Err(Unanswered::Nobody(_)) => self.read_kernel(SourceKind::Kernel),
            Err(Unanswered::Failed(ClientError::Denied { .. })) => {
                self.read_kernel(SourceKind::Denied)
            }
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    fn read_kernel(&mut self, asked: SourceKind) -> Result<Update> {
        let state = self.kernel.state()?;
        Ok(Update { asked, state })
    }

    /// Details of one group: the mechanism that enforces each knob, and the usage rates
    /// of its tasks. `None` if the group no longer exists.
    ///
    /// # Errors
    /// If the owner does not answer.
    pub fn details(&mut self, group: &str) -> Result<Option<Details>> {
        let state = match self.connection.state(Some(group)) {
            Err(Unanswered::Nobody(_) | Unanswered::Failed(ClientError::Denied { .. })) => {
                return Ok(None);
            }
            other => other?,
        };
        let mut groups = state.groups.into_iter();
        Ok(groups
            .find(|found| found.name == group)
            .map(|found| Details {
                plan: found.plan,
                task_rates: found.statistics.and_then(|sample| sample.task_rates),
            }))
    }
}
