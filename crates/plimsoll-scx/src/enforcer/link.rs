//! Connection of the enforcer to the scheduler in the kernel.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_engine::sample::SchedulerSample;

use crate::SchedExtError;
use crate::backoff::Backoff;
use crate::bpf_intf::plimsoll_params;
use crate::loading::{Loading, PolicyChange};
use crate::objects::Objects;

/// Message about the functions that are lost until the scheduler is loaded again.
pub(super) const LOSS: &str =
    "only quotas of groups that `run` made hold, and batch groups stay in the background";

/// Connection to the scheduler in the kernel.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The last scheduler, which may have been thrown out; `None`: it is not needed.
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
    /// Number of loads after the first one.
    pub nr_reloads: u64,
    /// Reason why the scheduler was last thrown out or not loaded.
    pub last_exit: Option<String>,
    /// File of the kernel's dump of a scheduler that was thrown out.
    pub dump: Option<PathBuf>,
}

impl Link {
    /// Notes that the scheduler does not run, and schedules the next attempt.
    pub fn has_failed(&mut self, now: Instant) {
        self.due = Some(self.backoff.after_failure(self.since.take(), now));
    }

    /// Returns whether the scheduler is to be loaded now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.objects.is_some()
            && self.since.is_none()
            && self.loading.is_none()
            && self.due.is_none_or(|due| due <= now)
    }

    /// The scheduler's state; `None`: it is not needed.
    pub fn sample(&self) -> Option<SchedulerSample> {
        self.objects.as_ref()?;
        let is_running = self.since.is_some();
        Some(SchedulerSample {
            state: if is_running { "running" } else { "down" }.into(),
            owner_pid: std::process::id(),
            nr_reloads: self.nr_reloads,
            loss: (!is_running).then(|| LOSS.into()),
            last_exit: self.last_exit.clone(),
            dump: self.dump.clone(),
        })
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
