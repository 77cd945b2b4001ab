//! Groups of commands and of single processes, as clients requested them.

use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::tasks::TaskId;
use serde::{Deserialize, Serialize};

use super::desired::Desired;
use super::members::lives;
use crate::state::Origin;

/// Group of a command or of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Command {
    /// The first process.
    pub pid: i32,
    /// Start time of the first process, which tells it from a later one with the same pid.
    pub start_time: u64,
    /// Command line, for people.
    pub subject: String,
    pub knobs: Knobs,
    #[serde(default)]
    pub best_effort: bool,
    /// The client's choice, where the owner of the machine leaves it to clients.
    #[serde(default)]
    pub is_scheduled: bool,
    /// Name of the group before a start at which the file had it: processes of it may be left in the
    /// cgroup of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// Processes to be moved into the group when it is made: its members when the last owner
    /// stopped, with their start times.
    #[serde(default)]
    pub members: Vec<(i32, u64)>,
}

impl Command {
    /// Returns whether the first process still runs, and its pid was not reused.
    pub fn lives(&self) -> bool {
        lives(self.first())
    }

    /// The first process, with its start time.
    pub fn first(&self) -> (i32, u64) {
        (self.pid, self.start_time)
    }

    /// Notes more processes, and forgets those that have ended.
    pub fn note_members(&mut self, mut more: Vec<(i32, u64)>) {
        self.members.append(&mut more);
        self.members.sort_unstable();
        self.members.dedup();
        self.members.retain(|member| lives(*member));
    }

    /// Whether a running process is to be moved into the group.
    pub fn awaits_members(&self) -> bool {
        self.members.iter().any(|member| lives(*member))
    }

    /// Has a process take the part of the first one. Returns whether there is one.
    pub fn begin_with(&mut self, process: Option<(i32, u64)>) -> bool {
        if let Some((pid, start_time)) = process {
            (self.pid, self.start_time) = (pid, start_time);
        }
        process.is_some()
    }

    pub fn desired(&self, name: &str) -> Desired {
        Desired {
            policy: GroupPolicy {
                name: name.to_owned(),
                selector: Selector::Process(TaskId {
                    tid: self.pid,
                    start_time: self.start_time,
                }),
                subject: self.subject.clone(),
                knobs: self.knobs.clone(),
                is_scheduled: self.is_scheduled,
            },
            group: name.to_owned(),
            origin: Origin::CommandLine,
            best_effort: self.best_effort,
            overlap: None,
        }
    }
}
