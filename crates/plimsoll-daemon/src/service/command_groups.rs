//! Groups of commands and of single processes: they end with their processes, and outlive a
//! restart of the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use plimsoll_cgroupfs::os;
use plimsoll_engine::own_groups;
use plimsoll_engine::{Result, tasks};

use super::Service;
use super::command::Command;
use super::members::{Members, cgroup_of, descendants, is_this_process, lives, members_of_groups};

/// Rounds in which the descendants of a process are looked for. What is forked in a group stays
/// there, so that each round finds less, unless something forks that cannot be moved.
const TREE_ROUNDS_MAX: usize = 64;

impl Service {
    /// Requests the groups of commands of an earlier daemon that still run.
    pub(super) fn request_running_commands(&mut self, in_cgroups: Members) {
        self.requests.retain_running(in_cgroups);
        self.request_commands();
        self.save_requests();
    }

    /// Makes a group for a process, or changes the knobs of a present one.
    pub(super) fn begin_command(&mut self, name: &str, command: Command) {
        let desired = self.desired_of_command(name, &command);
        self.table.set_desired(name, Some(desired));
        self.requests.put_command(name, command);
    }

    pub(super) fn end_command(&mut self, name: &str) {
        self.requests.remove_command(name);
        self.table.set_desired(name, None);
        self.save_requests();
    }

    /// Ends the groups that have been without processes for some time.
    pub(super) fn end_empty_commands(&mut self) {
        let now = os::now();
        let names = self.requests.commands().map(|(name, _)| name.clone());
        for name in names.collect::<Vec<String>>() {
            let Some(entry) = self.table.get(&name) else {
                continue;
            };
            let is_populated = match entry.applied {
                // A group that was removed is empty.
                Some(_) => self.is_populated(&name),
                None => self.requests.command(&name).is_some_and(Command::lives),
            };
            if self.requests.has_ended(&name, is_populated, now) {
                self.end_command(&name);
            }
        }
    }

    pub(super) fn is_populated(&self, name: &str) -> bool {
        let populated = self.enforcement.enforcer().is_populated(name);
        populated.unwrap_or(false)
    }

    /// Writes down the members of the groups of commands, before the groups are undone.
    pub(super) fn save_members(&mut self) {
        if self.requests.commands().next().is_none() && !self.requests.is_stale() {
            return;
        }
        let in_cgroups = members_of_groups(&self.hierarchy);
        for name in self.requests.update_members(in_cgroups) {
            self.table.set_desired(&name, None);
        }
        self.save_requests();
    }

    /// Moves the noted members of a group into it. Those that cannot be moved stay noted.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn take_back_members(&mut self, name: &str) -> Result<()> {
        let (mut result, mut seen) = (Ok(()), BTreeSet::new());
        for member in self.requests.take_members(name) {
            if !lives(member) {
                continue;
            }
            if let Err(error) = self.take_back(name, member.0, &mut seen) {
                self.requests.note_member(name, member);
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Takes the first process of a new group out of the other groups, from whose cgroups something
    /// else may have moved it. Those without another process end, as they would some seconds later.
    pub(super) fn take_out_of_others(&mut self, name: &str, process: (i32, u64)) {
        let others = self.requests.with_process(process);
        if others.iter().all(|other| other == name) {
            return;
        }
        let mut in_cgroups = members_of_groups(&self.hierarchy);
        for other in others.iter().filter(|other| *other != name) {
            let members = in_cgroups.remove(other).unwrap_or_default();
            if !self.requests.take_out(other, process, members) {
                self.end_command(other);
            }
        }
        self.request_commands();
    }

    /// Makes the removed group of a command again, with its command and its descendants.
    pub(super) fn take_back_command(&mut self, name: &str) {
        let Some(first) = self.requests.command(name).map(Command::first) else {
            return;
        };
        self.requests.note_member(name, first);
        self.reconcile();
    }

    /// Moves a process into its group, with the children that it started in no group. `seen`: the
    /// processes that were looked at.
    fn take_back(&mut self, name: &str, pid: i32, seen: &mut BTreeSet<i32>) -> Result<()> {
        if is_this_process(pid) || !seen.insert(pid) {
            return Ok(());
        }
        if !self.is_member(name, pid) {
            let added = self.enforcement.enforcer().add_process(name, pid);
            if added.is_err() && !tasks::is_gone(pid) {
                return added;
            }
        }
        for child in tasks::children(pid) {
            let cgroup = cgroup_of(&self.hierarchy, child);
            let is_free =
                cgroup.is_some_and(|cgroup| !own_groups::is_own(&self.hierarchy, &cgroup));
            if (is_free && !self.is_of_another(name, child)) || self.is_member(name, child) {
                self.take_back(name, child, seen)?;
            }
        }
        Ok(())
    }

    /// Whether a process is to be in another group, which may not be in force yet.
    fn is_of_another(&self, name: &str, pid: i32) -> bool {
        let process = tasks::start_time(pid).map(|start_time| (pid, start_time));
        let groups = process.map(|process| self.requests.with_process(process));
        groups.is_some_and(|groups| groups.iter().any(|other| other != name))
    }

    /// Moves the descendants of a process that run where it ran, in `home`, into its group.
    /// Returns why some stay out, a line each.
    pub(super) fn take_tree(&mut self, name: &str, pid: i32, home: &Path) -> Vec<String> {
        let mut problems = BTreeMap::new();
        for _ in 0..TREE_ROUNDS_MAX {
            let outside = descendants(pid).into_iter().filter(|child| {
                let is_new = !is_this_process(*child)
                    && !problems.contains_key(child)
                    && !self.is_of_another(name, *child);
                is_new && cgroup_of(&self.hierarchy, *child).as_deref() == Some(home)
            });
            let outside: Vec<i32> = outside.collect();
            if outside.is_empty() {
                break;
            }
            for child in outside {
                let added = self.enforcement.enforcer().add_process(name, child);
                if let Err(error) = added
                    && !tasks::is_gone(child)
                {
                    problems.insert(
                        child,
                        format!("process {child} stays without limits: {error}"),
                    );
                }
            }
        }
        problems.into_values().collect()
    }

    fn is_member(&self, name: &str, pid: i32) -> bool {
        let shown = self.enforcement.enforcer().shown_path(name);
        match (shown, cgroup_of(&self.hierarchy, pid)) {
            (Ok(shown), Some(cgroup)) => cgroup.starts_with(shown),
            _ => false,
        }
    }
}
