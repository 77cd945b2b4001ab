//! Groups of commands and of single processes: they end with their processes, and outlive a
//! restart of the daemon.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use plimsoll_engine::own_groups;
use plimsoll_engine::tasks;

use super::Service;
use super::command::Command;
use super::members::{Members, cgroup_of, children, descendants, is_this_process, lives};

/// Rounds in which the descendants of a process are looked for. What is forked in a group stays
/// there, so that each round finds less, unless something forks that cannot be moved.
const TREE_ROUNDS_MAX: usize = 64;

impl Service {
    /// Requests the groups of commands of an earlier daemon that still run.
    pub(super) fn request_running_commands(&mut self, members: &Members) {
        self.requests.retain_running(members);
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
        let now = Instant::now();
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

    /// Writes down the cgroups of commands: after a kill, members are found there.
    pub(super) fn update_folders(&mut self) {
        let enforcement = &self.enforcement;
        let changed = self
            .requests
            .update_folders(|name| enforcement.folder_of(name));
        if changed {
            self.save_requests();
        }
    }

    /// Writes down the members of the groups of commands, before the groups are undone.
    pub(super) fn save_members(&mut self) {
        if self.requests.commands().next().is_none() {
            return;
        }
        self.update_folders();
        for name in self.requests.update_members() {
            self.table.set_desired(&name, None);
        }
        self.save_requests();
    }

    /// Moves members into their groups again.
    pub(super) fn take_back_members(&mut self, members: &Members) {
        for (name, members) in members {
            if !self.table.is_applied(name) {
                continue;
            }
            for member in members.iter().filter(|member| lives(**member)) {
                self.take_back(name, member.0);
            }
        }
    }

    /// Makes the removed group of a command again, with its command and its descendants.
    pub(super) fn take_back_command(&mut self, name: &str) {
        let Some(first) = self.requests.command(name).map(|command| command.pid) else {
            return;
        };
        self.reconcile();
        if self.table.is_applied(name) {
            self.take_back(name, first);
        }
    }

    /// Moves a process into its group, with the children that it started in no group.
    pub(super) fn take_back(&mut self, name: &str, pid: i32) {
        if is_this_process(pid) {
            return;
        }
        if !self.is_member(name, pid) {
            let added = self.enforcement.enforcer().add_process(name, pid);
            if let Err(error) = added
                && !tasks::is_gone(pid)
            {
                let text = format!("{name}: cannot take back process {pid}: {error}");
                self.notices.log.error("member", &text);
                return;
            }
        }
        for child in children(pid) {
            let cgroup = cgroup_of(&self.hierarchy, child);
            if cgroup.is_some_and(|cgroup| !own_groups::is_own(&self.hierarchy, &cgroup)) {
                self.take_back(name, child);
            }
        }
    }

    /// Moves the descendants of a process that run where it ran, in `home`, into its group.
    /// Returns why some stay out, a line each.
    pub(super) fn take_tree(&mut self, name: &str, pid: i32, home: &Path) -> Vec<String> {
        let mut problems = BTreeMap::new();
        for _ in 0..TREE_ROUNDS_MAX {
            let outside = descendants(pid).into_iter().filter(|child| {
                let is_new = !is_this_process(*child) && !problems.contains_key(child);
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
