//! Requests of clients, kept across restarts of the daemon: `set` and the groups of commands.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::os;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::TaskId;

use super::super::command::{Asked, Command};
use super::super::members::{Members, is_this_process};
use super::super::requested::Requested;

/// Time for which the group of a command is kept after its last process, for a client that reads
/// its usage.
const KEPT_EMPTY: Duration = Duration::from_secs(5);

pub(in crate::service) struct Requests {
    runtime: RuntimeFolder,
    /// Device and inode of the runtime folder at the start.
    folder_id: Option<(u64, u64)>,
    pub requested: Requested,
    /// The last write failed.
    is_stale: bool,
    /// Groups of commands without processes, with the time since when.
    empty_since: BTreeMap<String, Instant>,
}

/// Device and inode of the runtime folder; `None`: it is missing.
fn folder_id(runtime: &RuntimeFolder) -> Option<(u64, u64)> {
    let found = os::look(runtime.path()).ok()?;
    Some((found.device, found.inode))
}

impl Requests {
    /// Reads the file, and returns a problem for the log.
    pub fn read(runtime: RuntimeFolder) -> (Self, Option<String>) {
        let (requested, problem) = Requested::read(&runtime);
        let requests = Self {
            folder_id: folder_id(&runtime),
            runtime,
            requested,
            is_stale: false,
            empty_since: BTreeMap::new(),
        };
        (requests, problem)
    }

    /// Writes the file. Returns the problem if that fails; it is written again later then.
    pub fn save(&mut self) -> Option<String> {
        let written = self.requested.write(&self.runtime);
        self.is_stale = written.is_err();
        written.err().map(|error| {
            format!("{error}; `set` knobs are lost when this daemon ends, unless the file can be written before")
        })
    }

    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// The problem for the operator where the runtime folder was removed.
    pub fn folder_problem(&self) -> Option<String> {
        (folder_id(&self.runtime) != self.folder_id).then(|| {
            format!(
                "{}: was removed, and the undo journal with it: after a kill, changes could not be \
                 undone; restart the daemon",
                self.runtime.path().display()
            )
        })
    }

    /// Knobs that clients ask for: for the group of a command, else for a group of the file, or a
    /// foreign cgroup.
    pub fn asked(&self, key: &str) -> Option<&Asked> {
        let of_command = self.command(key).map(|command| &command.asked);
        of_command.or_else(|| self.overlay(key))
    }

    /// Knobs that clients ask for, for a group of the file, or a foreign cgroup.
    pub fn overlay(&self, key: &str) -> Option<&Asked> {
        self.requested.overrides.get(key)
    }

    /// Replaces what [`Self::asked`] returns, or, with `None`, removes it: not for a command, which
    /// always has some. Returns whether there was any.
    pub fn put(&mut self, key: &str, asked: Option<Asked>) -> bool {
        let Requested {
            overrides,
            commands,
            ..
        } = &mut self.requested;
        let before = match (commands.get_mut(key), asked) {
            (Some(command), Some(asked)) => Some(std::mem::replace(&mut command.asked, asked)),
            (None, Some(asked)) => overrides.insert(key.to_owned(), asked),
            (_, None) => overrides.remove(key),
        };
        before.is_some()
    }

    pub fn command(&self, name: &str) -> Option<&Command> {
        self.requested.commands.get(name)
    }

    pub fn command_mut(&mut self, name: &str) -> Option<&mut Command> {
        self.requested.commands.get_mut(name)
    }

    pub fn commands(&self) -> impl Iterator<Item = (&String, &Command)> {
        self.requested.commands.iter()
    }

    pub fn remove_command(&mut self, name: &str) {
        self.requested.commands.remove(name);
        self.empty_since.remove(name);
    }

    /// Notes the running members of the groups of commands, to be moved into them, and drops groups
    /// without any. Where the first process of a group has ended, another member takes its part.
    pub fn retain_running(&mut self, mut in_cgroups: Members) {
        self.requested.commands.retain(|name, command| {
            command.members.push(command.first);
            command.note_members(in_cgroups.remove(name).unwrap_or_default());
            // A command of the group may have started this owner, which has to stay unlimited.
            command
                .members
                .retain(|member| !is_this_process(member.tid));
            command.has_first()
        });
    }

    /// Notes the members of the groups of commands, and removes the groups that have ended.
    /// Returns their names.
    pub fn update_members(&mut self, mut in_cgroups: Members) -> Vec<String> {
        for (name, command) in &mut self.requested.commands {
            command.note_members(in_cgroups.remove(name).unwrap_or_default());
        }
        let has_ended = |command: &Command| command.members.is_empty() && !command.first.exists();
        let ended = self.commands().filter(|(_, command)| has_ended(command));
        let ended: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        for name in &ended {
            self.remove_command(name);
        }
        ended
    }

    /// Notes a process that is to be moved into a group.
    pub fn note_member(&mut self, name: &str, member: TaskId) {
        if let Some(command) = self.command_mut(name) {
            command.members.push(member);
        }
    }

    /// The groups that begin with a process, or into which it is to be moved.
    pub fn with_process(&self, process: TaskId) -> Vec<String> {
        let with = self
            .commands()
            .filter(|(_, command)| command.first == process || command.members.contains(&process));
        with.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the group of a command has been without processes for [`KEPT_EMPTY`].
    pub fn has_ended(&mut self, name: &str, is_populated: bool, now: Instant) -> bool {
        if is_populated {
            self.empty_since.remove(name);
            return false;
        }
        let since = *self.empty_since.entry(name.to_owned()).or_insert(now);
        now.saturating_duration_since(since) >= KEPT_EMPTY
    }
}

/// Forgets the requests of a daemon that has ended. Returns their names.
pub fn forget(runtime: &RuntimeFolder) -> std::io::Result<Vec<String>> {
    let (requested, _) = Requested::read(runtime);
    Requested::default().write(runtime)?;
    let Requested {
        overrides,
        commands,
        burst_off,
    } = requested;
    let names = overrides.into_keys().chain(commands.into_keys());
    let switch = burst_off.then(|| "burst-enabled".to_owned());
    Ok(names.chain(switch).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_command_ends_some_seconds_after_its_last_process() {
        let folder = tempfile::tempdir().unwrap();
        let (mut requests, problem) = Requests::read(RuntimeFolder::at(folder.path()));
        assert_eq!(problem, None);
        let start = os::now();
        assert!(!requests.has_ended("job", false, start));
        assert!(!requests.has_ended("job", true, start + KEPT_EMPTY));
        assert!(!requests.has_ended("job", false, start + KEPT_EMPTY));
        assert!(requests.has_ended("job", false, start + KEPT_EMPTY * 2));
    }
}
