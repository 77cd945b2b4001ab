//! Groups of commands and of single processes, as clients requested them.

use std::path::PathBuf;

use plimsoll_engine::knobs::Knobs;
use serde::{Deserialize, Serialize};

use super::desired::{Desired, GroupKind};
use super::members::{is_this_process, lives, processes_below};
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
    /// Folder of its cgroup at the last write.
    pub folder: PathBuf,
    /// Members at the last clean stop, with their start times; after a kill they are read from
    /// the folder.
    #[serde(default)]
    pub members: Vec<(i32, u64)>,
}

impl Command {
    /// Returns whether the first process still runs, and its pid was not reused.
    pub fn lives(&self) -> bool {
        lives((self.pid, self.start_time))
    }

    /// Returns the running processes that are in the cgroup, or were there at the last clean stop.
    pub fn running_members(&self) -> Vec<(i32, u64)> {
        let mut members = processes_below(&self.folder);
        members.extend(&self.members);
        members.push((self.pid, self.start_time));
        members.sort_unstable();
        members.dedup();
        // A command of the group may have started this owner, which has to stay unlimited.
        members.retain(|member| lives(*member) && !is_this_process(member.0));
        members
    }

    pub fn desired(&self, name: &str) -> Desired {
        Desired {
            group: name.to_owned(),
            origin: Origin::CommandLine,
            kind: GroupKind::Command { pid: self.pid },
            knobs: self.knobs.clone(),
            subject: self.subject.clone(),
            best_effort: self.best_effort,
            is_scheduled: self.is_scheduled,
            overlap: None,
        }
    }
}
