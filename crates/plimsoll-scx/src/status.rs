//! What the leader publishes about the scheduler, for everybody else.

use std::path::PathBuf;

use plimsoll_engine::enforcer::SchedulerSample;
use plimsoll_engine::host::Mode;
use plimsoll_engine::runtime::{RuntimeFolder, write_atomically};
use serde::{Deserialize, Serialize};

/// What the scheduler is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It is on its way into the kernel.
    #[default]
    Loading,
    /// It schedules.
    Running,
    /// It was thrown out, or could not be loaded; it is tried again.
    Down,
}

/// The scheduler as its leader sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What it is doing.
    pub activity: Activity,
    /// Which tasks it schedules.
    pub mode: Mode,
    /// The process that keeps it in the kernel.
    pub leader_pid: u32,
    /// The kernel's number of its map of groups, while it runs.
    pub groups_id: u32,
    /// How often it was loaded again.
    pub nr_reloads: u64,
    /// Tasks that the fair class had to run.
    pub nr_rescues: u64,
    /// How long the last load took.
    pub load_usec: u64,
    /// Why it was thrown out or not loaded, last.
    pub last_exit: Option<String>,
    /// Where the kernel's dump of that is.
    pub dump: Option<PathBuf>,
    /// Callbacks that it does without, because the kernel has not got them.
    pub dropped_ops: Vec<String>,
}

/// Where it is published.
fn file(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("sched-ext.json")
}

impl Status {
    /// Publishes it. Control goes on without.
    pub(crate) fn publish(&self, runtime: &RuntimeFolder) {
        let _ = write_atomically(&file(runtime), self, false);
    }

    /// Nobody keeps a scheduler any more.
    pub(crate) fn withdraw(runtime: &RuntimeFolder) {
        let _ = std::fs::remove_file(file(runtime));
    }

    /// What was published last; its leader may be gone.
    pub fn published(runtime: &RuntimeFolder) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file(runtime)).ok()?).ok()
    }

    /// As part of a group's statistics.
    pub(crate) fn sample(self) -> SchedulerSample {
        let state = match self.activity {
            Activity::Loading => "loading",
            Activity::Running => "running",
            Activity::Down => "down",
        };
        SchedulerSample {
            state: state.into(),
            mode: self.mode.to_string(),
            leader_pid: self.leader_pid,
            nr_reloads: self.nr_reloads,
            nr_rescues: self.nr_rescues,
            last_exit: self.last_exit,
            dump: self.dump,
        }
    }
}
