//! Requests of clients, kept across restarts of the daemon: `set` and the groups of commands.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::os;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::TaskId;

use super::super::command::{Asked, CommandGroup};
use super::super::members::{Members, is_this_process};
use super::super::requested::Requested;

/// Time for which the group of a command is kept after its last process, for a client that reads
/// its usage.
const KEPT_EMPTY: Duration = Duration::from_secs(5);
/// Time before another attempt to write the file.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

pub(in crate::service) struct ClientRequests {
    runtime: RuntimeFolder,
    /// Device and inode of the runtime folder at the start.
    folder_id: Option<(u64, u64)>,
    pub requested: Requested,
    /// Time to write the file again; `None`: the last write has succeeded.
    save_due: Option<Instant>,
    /// Groups of commands without processes, with the time since when.
    empty_since: BTreeMap<String, Instant>,
    /// Times at which to look whether the groups of commands have processes. Most have none: the
    /// kernel tells when the last process ends.
    looks: BTreeMap<String, Instant>,
}

/// Device and inode of the runtime folder; `None`: it is missing.
fn folder_id(runtime: &RuntimeFolder) -> Option<(u64, u64)> {
    let found = os::look(runtime.path()).ok()?;
    Some((found.device, found.inode))
}

impl ClientRequests {
    /// Reads the file, and returns a problem for the log.
    pub fn read(runtime: RuntimeFolder) -> (Self, Option<String>) {
        let (requested, problem) = Requested::read(&runtime);
        let requests = Self {
            folder_id: folder_id(&runtime),
            runtime,
            requested,
            save_due: None,
            empty_since: BTreeMap::new(),
            looks: BTreeMap::new(),
        };
        (requests, problem)
    }

    /// Writes the file. Returns the problem if that fails; it is written again later then.
    pub fn save(&mut self) -> Option<String> {
        let written = self.requested.write(&self.runtime);
        self.save_due = written.is_err().then(|| os::now() + SAVE_INTERVAL);
        written.err().map(|error| {
            format!("{error}; `set` knobs are lost when this daemon ends, unless the file can be written before")
        })
    }

    /// Returns when to write the file again; `None`: it has the present requests.
    pub fn save_due(&self) -> Option<Instant> {
        self.save_due
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

    /// Replaces what [`Self::asked`] returns; `None`: undoes each `set`. Returns whether there was
    /// something.
    pub fn put(&mut self, key: &str, asked: Option<Asked>) -> bool {
        let Requested {
            overrides,
            commands,
            ..
        } = &mut self.requested;
        let before = match (commands.get_mut(key), asked) {
            (Some(command), Some(asked)) => {
                let before = std::mem::replace(&mut command.asked, asked);
                command.begun.get_or_insert_with(|| before.clone());
                command.begun.take_if(|begun| *begun == command.asked);
                Some(before)
            }
            (Some(command), None) => {
                let begun = command.begun.take();
                begun.map(|begun| std::mem::replace(&mut command.asked, begun))
            }
            (None, Some(asked)) => overrides.insert(key.to_owned(), asked),
            (None, None) => overrides.remove(key),
        };
        before.is_some()
    }

    pub fn command(&self, name: &str) -> Option<&CommandGroup> {
        self.requested.commands.get(name)
    }

    pub fn command_mut(&mut self, name: &str) -> Option<&mut CommandGroup> {
        self.requested.commands.get_mut(name)
    }

    pub fn commands(&self) -> impl Iterator<Item = (&String, &CommandGroup)> {
        self.requested.commands.iter()
    }

    pub fn remove_command(&mut self, name: &str) {
        self.requested.commands.remove(name);
        self.empty_since.remove(name);
        self.looks.remove(name);
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
        let has_ended =
            |command: &CommandGroup| command.members.is_empty() && !command.first.exists();
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

    /// Returns when the group of a command ends: once it has been without processes for
    /// [`KEPT_EMPTY`]. `None`: it has some.
    pub fn end_of(&mut self, name: &str, is_populated: bool, now: Instant) -> Option<Instant> {
        if is_populated {
            self.empty_since.remove(name);
            return None;
        }
        let since = *self.empty_since.entry(name.to_owned()).or_insert(now);
        Some(since + KEPT_EMPTY)
    }

    /// Has the group of a command looked at by a time. Does nothing for another group.
    pub fn look_at(&mut self, name: &str, by: Instant) {
        if self.command(name).is_some() {
            let at = self.looks.entry(name.to_owned()).or_insert(by);
            *at = by.min(*at);
        }
    }

    pub fn look_due(&self) -> Option<Instant> {
        self.looks.values().min().copied()
    }

    /// Takes the groups of commands that are to be looked at now.
    pub fn take_looks(&mut self, now: Instant) -> Vec<String> {
        let due = self.looks.extract_if(.., |_, at| *at <= now);
        due.map(|(name, _)| name).collect()
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
        ..
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
        let (mut requests, problem) = ClientRequests::read(RuntimeFolder::at(folder.path()));
        assert_eq!(problem, None);
        let start = os::now();
        let mut end_at = |is_populated, now| requests.end_of("job", is_populated, now);
        assert_eq!(end_at(false, start), Some(start + KEPT_EMPTY));
        assert_eq!(end_at(true, start + KEPT_EMPTY), None);
        for wait in [KEPT_EMPTY, KEPT_EMPTY * 2] {
            assert_eq!(end_at(false, start + wait), Some(start + KEPT_EMPTY * 2));
        }
    }
}
