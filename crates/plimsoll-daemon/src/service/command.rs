//! Knobs that clients ask for, and groups of commands and of single processes.

use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::tasks::TaskId;
use serde::{Deserialize, Serialize};

/// Knobs that a client asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub knobs: Knobs,
    #[serde(default)]
    pub best_effort: bool,
    /// The client's choice, where the owner of the machine leaves it to clients.
    #[serde(default)]
    pub is_scheduled: bool,
}

/// Group of a command or of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CommandGroup {
    /// The first process.
    #[serde(flatten)]
    pub first: TaskId,
    /// Command line, for people.
    pub subject: String,
    #[serde(flatten)]
    pub asked: Asked,
    /// Knobs that it began with, if it was `set` since.
    #[serde(default)]
    pub begun: Option<Asked>,
    /// Processes to be moved into the group when it is made: its members when the last owner
    /// stopped.
    #[serde(default)]
    pub members: Vec<TaskId>,
}

impl CommandGroup {
    /// Notes more processes, and forgets those that have ended.
    pub fn note_members(&mut self, mut more: Vec<TaskId>) {
        self.members.append(&mut more);
        self.members.sort_unstable();
        self.members.dedup();
        self.members.retain(|member| member.exists());
    }

    /// Whether a running process is to be moved into the group.
    pub fn awaits_members(&self) -> bool {
        self.members.iter().any(|member| member.exists())
    }

    /// Has a member take the part of the first process if that has ended. Returns whether the group
    /// has a process.
    pub fn has_first(&mut self) -> bool {
        let mut members = self.members.iter().copied();
        let next = members.find(|member| member.exists());
        self.first.exists() || self.begin_with(next)
    }

    /// Takes a process out of the group, whose cgroup has `members`. Returns whether the group has
    /// another process.
    pub fn take_out(&mut self, process: TaskId, members: Vec<TaskId>) -> bool {
        self.members.retain(|member| *member != process);
        let mut others = members.into_iter().chain(self.members.iter().copied());
        let other = others.find(|other| *other != process && other.exists());
        self.first != process || self.begin_with(other)
    }

    /// Has a process take the part of the first one. Returns whether there is one.
    fn begin_with(&mut self, process: Option<TaskId>) -> bool {
        self.first = process.unwrap_or(self.first);
        process.is_some()
    }
}
