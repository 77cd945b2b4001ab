//! What the owner publishes about the scheduler, for everybody else.

use std::path::PathBuf;

use plimsoll_engine::enforcer::SchedulerSample;
use plimsoll_engine::host::Mode;
use plimsoll_engine::runtime::{RuntimeFolder, write_atomically};
use serde::{Deserialize, Serialize};

use crate::host::Host;

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

/// The scheduler as its owner sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What it is doing.
    pub activity: Activity,
    /// Which tasks it schedules.
    pub mode: Mode,
    /// The process that looks after it.
    pub owner_pid: u32,
    /// The kernel's number of its map of groups, while it runs.
    pub groups_id: u32,
    /// How often it was loaded again.
    pub nr_reloads: u64,
    /// Tasks that the fair class had to run.
    pub nr_rescues: u64,
    /// Tasks that held a lock for which normal work waited, and ran at once.
    #[serde(default)]
    pub nr_promotions: u64,
    /// How long the last load took.
    pub load_usec: u64,
    /// Why it was thrown out or not loaded, last.
    pub last_exit: Option<String>,
    /// Where the kernel's dump of that is.
    pub dump: Option<PathBuf>,
    /// Callbacks that it does without, because the kernel has not got them.
    pub dropped_ops: Vec<String>,
    /// Which build of the scheduler it is.
    #[serde(default)]
    pub build: Option<String>,
}

/// Where it is published.
pub(crate) fn file(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("sched-ext.json")
}

/// Where the kernel's dump of a scheduler that it threw out is put.
pub(crate) fn dump_file(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("sched-ext.dump")
}

/// What is lost until a scheduler in this mode is loaded again.
pub(crate) fn loss_without(mode: Mode) -> &'static str {
    match mode {
        Mode::Partial => "no limit holds, but groups stay in the background",
        Mode::All => "no limit of a normal group holds; batch groups stay in the background",
    }
}

impl Status {
    /// Publishes it. Control goes on without.
    pub(crate) fn publish(&self, runtime: &RuntimeFolder) {
        let _ = write_atomically(&file(runtime), self, false);
    }

    /// Nobody keeps the scheduler any more.
    pub(crate) fn withdraw(runtime: &RuntimeFolder) {
        let _ = std::fs::remove_file(file(runtime));
    }

    /// What was published last; its owner may be gone.
    pub fn published(runtime: &RuntimeFolder) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file(runtime)).ok()?).ok()
    }

    /// What is so now: a scheduler that nobody keeps, or that is not in the
    /// kernel, is down. Costs two small reads.
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

    /// As part of a group's statistics.
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
    fn without_a_scheduler_it_is_said_whose_limits_do_not_hold() {
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
        let nobody = Status::now(&RuntimeFolder::at("/nonexistent"), Mode::Partial);
        assert!(nobody.sample().loss.unwrap().contains("in the background"));
    }
}
