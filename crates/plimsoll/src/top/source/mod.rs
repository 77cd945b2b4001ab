//! Source of states: the owner or, without one, the kernel's counters.

mod kernel;

use std::time::Duration;

use plimsoll_daemon::control::client::ClientError;
use plimsoll_daemon::state::{GroupState, State};
use serde::Serialize;

use crate::error::{CommandError, Result};
use crate::owner::Owner;
use crate::target::Target;
use kernel::KernelSource;

/// Time limit for a connection, and for an answer, before an error is shown.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

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

pub struct StateSource {
    /// The owner that has answered last.
    owner: Option<Owner>,
    kernel: KernelSource,
}

impl StateSource {
    pub fn new() -> Self {
        Self {
            owner: None,
            kernel: KernelSource::new(),
        }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// If the owner does not answer, or the kernel's counters cannot be read.
    pub fn read(&mut self) -> Result<Update> {
        match self.ask(|owner| owner.show(None)) {
            Ok(Some(mut state)) => {
                state.groups.sort_by(|one, two| one.name.cmp(&two.name));
                let asked = SourceKind::Daemon;
                Ok(Update { asked, state })
            }
            Ok(None) => self.read_kernel(SourceKind::Kernel),
            Err(CommandError::Client(ClientError::Denied { .. })) => {
                self.read_kernel(SourceKind::Denied)
            }
            Err(error) => Err(error),
        }
    }

    fn read_kernel(&mut self, asked: SourceKind) -> Result<Update> {
        let state = self.kernel.state()?;
        Ok(Update { asked, state })
    }

    /// One group with the mechanism that enforces each knob, and the usage rates of its tasks.
    /// `None` if the group no longer exists.
    ///
    /// # Errors
    /// If the owner does not answer.
    pub fn details(&mut self, group: &str) -> Result<Option<GroupState>> {
        let state = self.ask(|owner| owner.show_tasks(&Target::group(group)))?;
        let mut groups = state.into_iter().flat_map(|state| state.groups);
        Ok(groups.find(|found| found.name == group))
    }

    /// Asks the owner: this user's own before the host's. `None`: none runs.
    fn ask(&mut self, question: impl FnOnce(&mut Owner) -> Result<State>) -> Result<Option<State>> {
        let mut owner = match self.owner.take() {
            Some(owner) => owner,
            None => match Owner::all_within(ANSWER_WITHIN)?.into_iter().next() {
                Some(found) => found.without_successor(),
                None => return Ok(None),
            },
        };
        let state = question(&mut owner)?;
        // After an error, the next call looks for an owner again.
        self.owner = Some(owner);
        Ok(Some(state))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::sys::socket::{Backlog, listen};
    use plimsoll_daemon::control::protocol::SOCKET;
    use plimsoll_engine::runtime::RuntimeFolder;

    use super::*;

    #[test]
    fn an_owner_with_a_full_queue_is_waited_for_as_long_as_for_an_answer() {
        let folder = tempfile::tempdir().unwrap();
        let (runtime, path) = (RuntimeFolder::at(folder.path()), folder.path().join(SOCKET));
        let listener = UnixListener::bind(&path).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _waits = UnixStream::connect(path).unwrap();
        let found = Owner::at_within(&runtime, Duration::from_millis(1));
        let Err(CommandError::Client(ClientError::TooLate { after, .. })) = found else {
            panic!("it is not too late");
        };
        assert_eq!(after, Duration::from_millis(1));
    }
}
