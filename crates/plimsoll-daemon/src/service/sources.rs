//! Desired state of each group, merged from its sources: the file and clients.

use std::path::Path;

use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::own_groups;

use super::Service;
use super::command::CommandGroup;
use super::desired::Desired;
use crate::config::Rule;
use crate::state::KnobOrigin;

impl Service {
    /// Updates the desired state of a foreign cgroup.
    pub(super) fn request_cgroup(&mut self, path: &str) {
        let desired = self.desired_of_cgroup(path);
        if let Some(note) = desired
            .as_ref()
            .and_then(|desired| self.file.new_overlap(desired))
        {
            self.notices
                .log
                .warning("overlap", &format!("{path}: {note}"));
        }
        self.table.set_desired(path, desired);
    }

    pub(super) fn request_all_cgroups(&mut self) {
        for path in self.cgroups.paths() {
            self.request_cgroup(&path);
        }
    }

    /// The desired state of a foreign cgroup; `None`: no source names it.
    pub(super) fn desired_of_cgroup(&self, path: &str) -> Option<Desired> {
        if path == "/" || own_groups::is_own(&self.hierarchy, Path::new(path)) {
            return None;
        }
        let matched = self.config().match_cgroup(path);
        let mut desired = match matched {
            Some(matched) => Desired {
                overlap: matched.overlap.map(|rule| rule.name.clone()),
                ..self.desired_of_rule(path, matched.rule)
            },
            None => {
                self.requests.overlay(path)?;
                self.desired_foreign(path, path, Knobs::default())
            }
        };
        self.overlay(&mut desired, path);
        Some(desired)
    }

    /// The desired state of a foreign cgroup before the knobs of clients.
    fn desired_foreign(&self, path: &str, group: &str, knobs: Knobs) -> Desired {
        Desired::foreign(path, group, knobs, self.enforcement.planner.is_scheduled())
    }

    /// The desired state of a cgroup of a group of the file, with the knobs that were `set` for that
    /// group.
    pub(super) fn desired_of_rule(&self, path: &str, rule: &Rule) -> Desired {
        let mut desired = self.desired_foreign(path, &rule.name, rule.knobs.clone());
        self.overlay(&mut desired, &rule.name);
        desired
    }

    /// Adds what clients ask for a group of the file or a foreign cgroup.
    fn overlay(&self, desired: &mut Desired, key: &str) {
        let Some(asked) = self.requests.overlay(key) else {
            return;
        };
        let policy = &mut desired.policy;
        policy.knobs = policy.knobs.overlaid(&asked.knobs);
        policy.is_scheduled = self.enforcement.planner.schedules(asked.is_scheduled);
        desired.best_effort |= asked.best_effort;
        desired.origin = KnobOrigin::CommandLine;
    }

    pub(super) fn desired_of_command(&self, name: &str, command: &CommandGroup) -> Desired {
        let asked = &command.asked;
        Desired {
            policy: GroupPolicy {
                name: name.to_owned(),
                first: Some(command.first),
                subject: command.subject.clone(),
                knobs: asked.knobs.clone(),
                is_scheduled: self.enforcement.planner.schedules(asked.is_scheduled),
            },
            group: name.to_owned(),
            origin: KnobOrigin::CommandLine,
            best_effort: asked.best_effort,
            overlap: None,
        }
    }

    /// Updates the desired state of the group of a command, also of one that has ended.
    pub(super) fn request_command(&mut self, name: &str) {
        let command = self.requests.command(name);
        let desired = command.map(|command| self.desired_of_command(name, command));
        self.table.set_desired(name, desired);
    }

    /// Updates the desired state of the groups of all commands.
    pub(super) fn request_commands(&mut self) {
        let names = self.requests.commands().map(|(name, _)| name.clone());
        for name in names.collect::<Vec<String>>() {
            self.request_command(&name);
        }
    }
}
