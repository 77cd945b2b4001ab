//! Groups of commands and of single processes: they end with their processes, and outlive a
//! restart of the daemon.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Instant;

use plimsoll_cgroupfs::{name, os};
use plimsoll_engine::own_groups;
use plimsoll_engine::tasks::{self, TaskId};
use plimsoll_engine::{EngineError, Result};

use super::Service;
use super::members::{Members, cgroup_of, descendants, is_this_process, members_of_groups};
use super::options::LOOK_INTERVAL;

/// Rounds in which the descendants of a process are looked for. What is forked in a group stays
/// there, so that each round finds less, unless something forks that cannot be moved.
const TREE_ROUNDS_MAX: usize = 64;

impl Service {
    /// Requests the groups of commands of an earlier daemon that still run.
    pub(super) fn request_running_commands(&mut self, in_cgroups: Members) {
        self.requests.retain_running(in_cgroups);
        self.request_commands();
        self.save_requests();
        for desired in self.table.desired_states() {
            if let Some(note) = self.namesake_note(desired) {
                let text = format!("{}: {note}", desired.group);
                self.notices.log.warning("requested", &text);
            }
        }
    }

    pub(super) fn end_command(&mut self, name: &str) {
        self.requests.remove_command(name);
        self.request_command(name);
        self.save_requests();
    }

    /// Looks at the groups of commands that may have lost their last process.
    pub(super) fn look_at_commands(&mut self) {
        let now = os::now();
        for name in self.requests.take_looks(now) {
            self.look_at_command(&name, now);
        }
    }

    /// Ends the group of a command that has been without processes for some time.
    fn look_at_command(&mut self, name: &str, now: Instant) {
        let Some(entry) = self.table.get(name) else {
            return;
        };
        if let Some(gone) = self.removed_cgroup(name) {
            // The watch has seen neither its beginning nor its end.
            self.cgroup_has_gone(&gone);
            return;
        }
        // The first process of a group that was removed, or that something else has moved it out
        // of, does not count.
        let is_waiting = entry.applied.is_none();
        let command = self.requests.command(name);
        let is_awaited = command.is_some_and(|command| {
            command.awaits_members() || is_waiting && command.first.exists()
        });
        // Before the look, so that no end is missed.
        let is_told = !is_awaited && self.follow_processes(name);
        let has_processes = self.has_processes(name);
        let is_populated = is_awaited || has_processes.unwrap_or(true);
        let end = self.requests.end_of(name, is_populated, now);
        if end.is_some_and(|end| end <= now) {
            return self.end_command(name);
        }
        let again = !is_told || has_processes.is_none();
        let again = again.then_some(now + LOOK_INTERVAL);
        if let Some(next) = again.into_iter().chain(end).min() {
            self.requests.look_at(name, next);
        }
        if is_waiting && let Some(command) = self.requests.command_mut(name) {
            // A group cannot be made for a process that has ended.
            command.has_first();
            self.request_command(name);
        }
    }

    /// Has the kernel tell when the last process of a group ends. Returns false if it does not: on
    /// cgroup v1, beyond the kernel's limits of watches, and before the group is in force.
    fn follow_processes(&mut self, name: &str) -> bool {
        let shown = self.enforcement.enforcer().stock().shown_path(name);
        shown.is_ok_and(|shown| self.cgroups.follow_processes(&name::text_of(shown)))
    }

    /// The cgroup of a group in force, if another process has removed it.
    fn removed_cgroup(&self, name: &str) -> Option<String> {
        if !self.table.is_applied(name) {
            return None;
        }
        let shown = self.enforcement.enforcer().stock().shown_path(name).ok()?;
        let shown = name::text_of(shown);
        (!self.folder_exists(&shown)).then_some(shown)
    }

    pub(super) fn is_populated(&self, name: &str) -> bool {
        // One that cannot be read may have some.
        self.has_processes(name).unwrap_or(true)
    }

    /// Whether a group has processes; `None`: it cannot be read, such as with too many open files.
    fn has_processes(&self, name: &str) -> Option<bool> {
        match self.enforcement.enforcer().stock().is_populated(name) {
            Err(EngineError::NoTarget { .. }) => Some(false),
            Err(error) if error.is_gone() => Some(false),
            populated => populated.ok(),
        }
    }

    /// Writes down the members of the groups of commands, before the groups are undone.
    pub(super) fn save_members(&mut self) {
        if self.requests.commands().next().is_none() && self.requests.save_due().is_none() {
            return;
        }
        let in_cgroups = members_of_groups(&self.hierarchy);
        for name in self.requests.update_members(in_cgroups) {
            self.request_command(&name);
        }
        self.save_requests();
    }

    /// Moves the noted members of a group into it, with the children that they started in no group.
    /// Those that cannot be moved stay noted.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn take_back_members(&mut self, name: &str) -> Result<()> {
        let command = self.requests.command_mut(name);
        let noted = command.map(|command| std::mem::take(&mut command.members));
        let members = noted.into_iter().flatten().filter(|member| member.exists());
        let mut ahead: VecDeque<i32> = members.map(|member| member.tid).collect();
        let (mut result, mut seen) = (Ok(()), BTreeSet::new());
        while let Some(pid) = ahead.pop_front() {
            if is_this_process(pid) || !seen.insert(pid) {
                continue;
            }
            if let Err(error) = self.take_in(name, pid) {
                if let Some(member) = TaskId::of(pid) {
                    self.requests.note_member(name, member);
                }
                result = result.and(Err(error));
            }
            let children = tasks::children(pid).into_iter();
            ahead.extend(children.filter(|child| self.comes_back(name, *child)));
        }
        result
    }

    /// Whether the child of a member belongs to the group, too.
    fn comes_back(&self, name: &str, child: i32) -> bool {
        let cgroup = cgroup_of(&self.hierarchy, child);
        let is_free = cgroup.is_some_and(|cgroup| !own_groups::is_own(&self.hierarchy, &cgroup));
        (is_free && !self.is_of_another(name, child)) || self.is_member(name, child)
    }

    /// Takes the first process of a new group out of the other groups, from whose cgroups something
    /// else may have moved it. Those without another process end, as they would some seconds later.
    pub(super) fn take_out_of_others(&mut self, name: &str, process: TaskId) {
        let others = self.requests.with_process(process);
        if others.iter().all(|other| other == name) {
            return;
        }
        let mut in_cgroups = members_of_groups(&self.hierarchy);
        for other in others.iter().filter(|other| *other != name) {
            let members = in_cgroups.remove(other).unwrap_or_default();
            let command = self.requests.command_mut(other);
            if !command.is_some_and(|command| command.take_out(process, members)) {
                self.end_command(other);
            }
        }
        self.request_commands();
    }

    /// Makes the removed group of a command again, with its command and its descendants.
    pub(super) fn take_back_command(&mut self, name: &str) {
        let Some(first) = self.requests.command(name).map(|command| command.first) else {
            return;
        };
        self.requests.note_member(name, first);
        self.reconcile();
    }

    /// Moves a process into its group, unless it is there or has ended.
    pub(super) fn take_in(&mut self, name: &str, pid: i32) -> Result<()> {
        if self.is_member(name, pid) {
            return Ok(());
        }
        let added = self.enforcement.enforcer().stock().add_process(name, pid);
        match added {
            Err(_) if tasks::is_gone(pid) => Ok(()),
            added => added,
        }
    }

    /// Whether a process is to be in another group, which may not be in force yet.
    fn is_of_another(&self, name: &str, pid: i32) -> bool {
        let groups = TaskId::of(pid).map(|process| self.requests.with_process(process));
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
                let added = self.enforcement.enforcer().stock().add_process(name, child);
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

    pub(super) fn is_member(&self, name: &str, pid: i32) -> bool {
        let shown = self.enforcement.enforcer().stock().shown_path(name);
        match (shown, cgroup_of(&self.hierarchy, pid)) {
            (Ok(shown), Some(cgroup)) => cgroup.starts_with(shown),
            _ => false,
        }
    }
}
