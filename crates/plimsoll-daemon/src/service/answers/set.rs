//! `set` and `reset`.

use std::os::fd::BorrowedFd;

use super::super::Service;
use super::super::desired::Desired;
use super::super::members::cgroup_of;
use super::handles::check_limitable;
use super::targets::{FoundTarget, group_of};
use super::{Refused, one_line};
use crate::config::PROCESS_GROUP;
use crate::control::protocol::{Answer, SetRequest};

/// Adds warnings to an answer.
fn warned(mut answer: Answer, more: Vec<String>) -> Answer {
    if let Answer::Groups { warnings, .. } = &mut answer {
        warnings.extend(more);
    }
    answer
}

impl Service {
    pub(super) fn set(
        &mut self,
        set: &SetRequest,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<Answer, Refused> {
        if set.knobs.is_empty() {
            return Err("set: no knob is given".into());
        }
        let checked = set.knobs.check_cpus(self.enforcement.planner.nr_cpus());
        checked.map_err(one_line)?;
        let found = self.find(&set.target, handle)?;
        self.check_is_whole(&set.target, handle, &found)?;
        match &found {
            &FoundTarget::Process(process) => {
                check_limitable(&set.target, process)?;
                let pid = process.tid;
                let name = group_of(pid);
                self.check_in_no_other(&set.target, pid, &name)?;
                let home = cgroup_of(&self.hierarchy, pid);
                let subject = format!("pid {pid}");
                let command = self.new_command(process, subject, &set.knobs, set.choice)?;
                if set.choice.dry_run {
                    return self.planned(&name, &self.desired_of_command(&name, &command));
                }
                self.begin(&name, command)?;
                let left = home.map(|home| self.take_tree(&name, pid, &home));
                self.complete(&name);
                Ok(warned(self.groups_now(&[name]), left.unwrap_or_default()))
            }
            FoundTarget::Command(key) | FoundTarget::Rule(key) | FoundTarget::Cgroup(key) => {
                self.change(&found, key, set)
            }
        }
    }

    /// Changes what clients ask for a present group. If that cannot be in force, it stays as it was.
    fn change(
        &mut self,
        found: &FoundTarget,
        key: &str,
        set: &SetRequest,
    ) -> Result<Answer, Refused> {
        let before = self.requests.asked(key).cloned();
        let mut after = before.clone().unwrap_or_default();
        after.knobs = after.knobs.overlaid(&set.knobs);
        after.best_effort |= set.choice.best_effort;
        let present = before.as_ref().map(|before| (key, before.is_scheduled));
        after.is_scheduled = self.choose(present, set.choice)?;
        self.requests.put(key, Some(after));
        if set.choice.dry_run {
            let desired = self.desired_of(found);
            self.requests.put(key, before);
            let desired = desired.ok_or(format!("{key}: cannot be in a group"))?;
            return self.planned(key, &desired);
        }
        if let Err(error) = self.check_without_cgroups(found) {
            self.requests.put(key, before);
            return Err(one_line(error));
        }
        self.overwrite(&self.names_of(found));
        self.request_found(found);
        self.reconcile();
        let names = self.names_of(found);
        // A cgroup of the group that is removed meanwhile is no failure.
        let is_meant = |name: &&String| *name == key || self.folder_exists(name);
        let mut failures = names.iter().filter(is_meant);
        let problem = failures.find_map(|name| self.table.failure(name));
        if let Some(problem) = problem {
            self.requests.put(key, before);
            self.request_found(found);
            self.reconcile();
            return Err(problem);
        }
        self.save_requests();
        let left = match set.target.parse() {
            Ok(pid) => self.take_back_by_set(key, pid),
            Err(_) => self.without_cgroups(found).into_iter().collect(),
        };
        Ok(warned(self.groups_now(&names), left))
    }

    /// Checks a group of the file that no cgroup matches now, and which so is not put into force.
    fn check_without_cgroups(&self, found: &FoundTarget) -> plimsoll_engine::Result<()> {
        let desired = self.desired_of(found);
        let unmatched = desired.filter(|_| self.names_of(found).is_empty());
        let check = |desired| self.enforcement.planner.check(&desired);
        unmatched.map_or(Ok(()), check)
    }

    /// Moves a process into its group again if something else has moved it out, with those that it
    /// has started where it is now. Returns why some stay out, a line each.
    fn take_back_by_set(&mut self, name: &str, pid: i32) -> Vec<String> {
        let home = cgroup_of(&self.hierarchy, pid);
        if self.is_member(name, pid) {
            return Vec::new();
        }
        match self.take_in(name, pid) {
            Ok(()) => home.map_or_else(Vec::new, |home| self.take_tree(name, pid, &home)),
            Err(error) => vec![one_line(error)],
        }
    }

    /// The desired state of a target that has a group, or can have one.
    pub(super) fn desired_of(&self, found: &FoundTarget) -> Option<Desired> {
        match found {
            FoundTarget::Cgroup(path) => self.desired_of_cgroup(path),
            FoundTarget::Rule(name) => Some(self.desired_of_rule(name, self.file.rule(name)?)),
            FoundTarget::Command(name) => {
                Some(self.desired_of_command(name, self.requests.command(name)?))
            }
            FoundTarget::Process(_) => None,
        }
    }

    /// Updates the desired state of all groups of a target.
    fn request_found(&mut self, found: &FoundTarget) {
        for name in self.names_of(found) {
            match found {
                FoundTarget::Command(_) => self.request_command(&name),
                _ => self.request_cgroup(&name),
            }
        }
    }

    pub(super) fn reset(
        &mut self,
        target: &str,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<Answer, Refused> {
        let found = self.find(target, handle).or_else(|refused| {
            // The override of a cgroup that was removed would apply to the next one with its
            // path.
            let was_set = self.requests.asked(target).is_some();
            was_set
                .then(|| FoundTarget::Cgroup(target.to_owned()))
                .ok_or(refused)
        })?;
        self.check_is_whole(target, handle, &found)?;
        let key = match &found {
            // The group of a process ends with its knobs.
            FoundTarget::Command(name) if name.starts_with(PROCESS_GROUP) => {
                self.end_command(name);
                self.reconcile();
                return Ok(self.groups_now(&[]));
            }
            FoundTarget::Rule(key) | FoundTarget::Cgroup(key) | FoundTarget::Command(key) => {
                key.clone()
            }
            FoundTarget::Process(_) => return Err(format!("{target}: nothing was `set` for it")),
        };
        if !self.requests.put(&key, None) {
            return Err(format!("{target}: nothing was `set` for it"));
        }
        let mut names = self.names_of(&found);
        if names.iter().any(|name| self.table.get(name).is_some()) {
            self.overwrite(&names);
            self.request_found(&found);
            self.reconcile();
        }
        names.retain(|name| self.table.get(name).is_some());
        self.save_requests();
        Ok(self.groups_now(&names))
    }
}
