//! Status of the scheduler, as published by its owner for other processes.

use std::path::PathBuf;

use plimsoll_engine::enforcer::SchedulerSample;
use plimsoll_engine::host::Mode;
use plimsoll_engine::runtime::{RuntimeFolder, write_atomically};
use serde::{Deserialize, Serialize};

use crate::host::Host;

/// State of the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It is being loaded.
    #[default]
    Loading,
    /// It is scheduling.
    Running,
    /// It was thrown out, or could not be loaded; loading is retried.
    Down,
}

/// The scheduler as its owner sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its state.
    pub activity: Activity,
    /// Its mode: the tasks that it schedules.
    pub mode: Mode,
    /// The process that supervises it.
    pub owner_pid: u32,
    /// The kernel's id of its map of groups, while it runs.
    pub groups_id: u32,
    /// Number of reloads.
    pub nr_reloads: u64,
    /// Tasks that fell back to the fair class.
    pub nr_rescues: u64,
    /// Boosts of tasks that held a lock for which normal work waited.
    #[serde(default)]
    pub nr_promotions: u64,
    /// Duration of the last load.
    pub load_usec: u64,
    /// Reason why it was last thrown out or not loaded.
    pub last_exit: Option<String>,
    /// File of the kernel's dump of that.
    pub dump: Option<PathBuf>,
    /// Callbacks that were removed because the kernel lacks them.
    pub dropped_ops: Vec<String>,
    /// Build of the scheduler.
    #[serde(default)]
    pub build: Option<String>,
}

/// File of the published status.
pub(crate) fn file(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("sched-ext.json")
}

/// File of the kernel's dump of a scheduler that was thrown out.
pub(crate) fn dump_file(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("sched-ext.dump")
}

/// Message: the functions lost until a scheduler in this mode is loaded again.
pub(crate) fn loss_without(mode: Mode) -> &'static str {
    match mode {
        Mode::Partial => "no limit holds, but groups stay in the background",
        Mode::All => "no limit of a normal group holds; batch groups stay in the background",
    }
}

impl Status {
    /// Publishes the status. A failure is ignored: control continues without.
    pub(crate) fn publish(&self, runtime: &RuntimeFolder) {
        let _ = write_atomically(&file(runtime), self, false);
    }

    /// Removes the published status when the scheduler has no owner.
    pub(crate) fn withdraw(runtime: &RuntimeFolder) {
        let _ = std::fs::remove_file(file(runtime));
    }

    /// The status that was published last; its owner may be gone.
    pub fn published(runtime: &RuntimeFolder) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file(runtime)).ok()?).ok()
    }

    /// The present status: a scheduler without owner, or that is not in the kernel, is down. Costs
    /// two small reads.
    pub(crate) fn now(runtime: &RuntimeFolder, mode: Mode) -> Self {
        let unknown = Self {
            activity: Activity::Down,
            mode,
            ..Self::default()
        };
        let published = Self::published(runtime).unwrap_or(unknown);
        published.seen_with(Host::is_loaded())
    }

    fn seen_with(mut self, is_loaded: bool) -> Self {
        if self.activity == Activity::Running && !is_loaded {
            self.activity = Activity::Down;
        }
        self
    }

    /// The status as part of a group's statistics.
    pub(crate) fn sample(self) -> SchedulerSample {
        let is_running = self.activity == Activity::Running;
        let state = match self.activity {
            Activity::Loading => "loading",
            Activity::Running => "running",
            Activity::Down => "down",
        };
        SchedulerSample {
            state: state.into(),
            mode: self.mode.to_string(),
            owner_pid: self.owner_pid,
            nr_reloads: self.nr_reloads,
            nr_rescues: self.nr_rescues,
            nr_promotions: self.nr_promotions,
            loss: (!is_running).then(|| loss_without(self.mode).into()),
            last_exit: self.last_exit,
            dump: self.dump,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_scheduler_the_status_says_which_limits_do_not_hold() {
        let running = Status {
            activity: Activity::Running,
            mode: Mode::All,
            ..Status::default()
        };
        assert_eq!(running.clone().seen_with(true).sample().loss, None);
        // Its owner was killed: what it published is still there.
        let sample = running.seen_with(false).sample();
        assert_eq!(sample.state, "down");
        assert!(sample.loss.unwrap().contains("normal group"));
        let unowned = Status::now(&RuntimeFolder::at("/nonexistent"), Mode::Partial);
        assert!(unowned.sample().loss.unwrap().contains("in the background"));
    }
}
