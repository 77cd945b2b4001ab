//! Status of the scheduler, which its owner also publishes for other processes.

use std::path::PathBuf;

use plimsoll_engine::runtime::{RuntimeFolder, write_atomically};
use plimsoll_engine::sample::SchedulerSample;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerActivity {
    #[default]
    Loading,
    Running,
    /// The scheduler was thrown out, or could not be loaded; loading is retried.
    Down,
}

/// The scheduler as its owner sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub activity: SchedulerActivity,
    /// The process that keeps the scheduler loaded.
    pub owner_pid: u32,
    /// The kernel's id of the map of groups of the last scheduler; 0: none was loaded.
    pub groups_id: u32,
    pub nr_reloads: u64,
    pub load_usec: u64,
    /// Reason why the scheduler was last thrown out or not loaded.
    pub last_exit: Option<String>,
    /// File of the kernel's dump of a scheduler that was thrown out.
    pub dump: Option<PathBuf>,
    /// Probed functions without which the scheduler runs, because the kernel lacks one.
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

/// Message about the functions that are lost until the scheduler is loaded again.
pub(crate) const LOSS: &str =
    "only quotas of groups that `run` made hold, and batch groups stay in the background";

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

    /// The status as part of a group's statistics.
    pub(crate) fn sample(&self) -> SchedulerSample {
        let is_running = self.activity == SchedulerActivity::Running;
        let state = match self.activity {
            SchedulerActivity::Loading => "loading",
            SchedulerActivity::Running => "running",
            SchedulerActivity::Down => "down",
        };
        SchedulerSample {
            state: state.into(),
            owner_pid: self.owner_pid,
            nr_reloads: self.nr_reloads,
            loss: (!is_running).then(|| LOSS.into()),
            last_exit: self.last_exit.clone(),
            dump: self.dump.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_scheduler_the_status_says_which_limits_do_not_hold() {
        let sample_of = |activity| {
            let status = Status {
                activity,
                ..Status::default()
            };
            status.sample()
        };
        assert_eq!(sample_of(SchedulerActivity::Running).loss, None);
        let down = sample_of(SchedulerActivity::Down);
        assert_eq!(down.state, "down");
        assert!(down.loss.unwrap().contains("only quotas"));
        let loading = sample_of(SchedulerActivity::Loading);
        assert!(loading.loss.unwrap().contains("in the background"));
    }
}
