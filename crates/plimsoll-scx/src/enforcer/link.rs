//! Connection of the enforcer to the scheduler in the kernel.

use std::time::Instant;

use plimsoll_engine::journal::Journal;

use crate::SchedExtError;
use crate::backoff::Backoff;
use crate::bpf_intf::plimsoll_params;
use crate::loading::{Loading, PolicyChange};
use crate::objects::Objects;
use crate::status::Status;

/// Connection to the scheduler in the kernel.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The scheduler's journal; `None`: it is not needed.
    pub journal: Option<Journal>,
    pub status: Status,
    /// The last scheduler, which may have been thrown out.
    pub objects: Option<Objects>,
    /// Time at which it began to run; `None`: it does not run.
    pub since: Option<Instant>,
    /// The thread that loads the next one.
    pub loading: Option<Loading>,
    /// Time of the next attempt after a failure.
    pub due: Option<Instant>,
    /// Whether groups in the scheduler may differ from those that it is to have.
    pub is_behind: bool,
    pub backoff: Backoff,
}

impl Link {
    /// Notes that the scheduler does not run, and schedules the next attempt.
    pub fn has_failed(&mut self, now: Instant) {
        self.due = Some(self.backoff.after_failure(self.since.take(), now));
    }

    /// Returns whether the scheduler is to be loaded now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.journal.is_some()
            && self.since.is_none()
            && self.loading.is_none()
            && self.due.is_none_or(|due| due <= now)
    }

    /// Creates, changes or ends a group in the scheduler, and in the one that is being loaded.
    pub fn apply(&self, params: plimsoll_params) -> Result<(), SchedExtError> {
        let objects = self.objects.as_ref();
        objects.map_or(Ok(()), |objects| objects.apply(params))?;
        if let Some(loading) = &self.loading {
            loading.send(PolicyChange::Group(params));
        }
        Ok(())
    }
}
