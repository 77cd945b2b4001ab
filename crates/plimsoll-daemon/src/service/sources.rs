//! Desired state of each group, merged from its sources: the file and clients.

use std::path::Path;

use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::own_groups;

use super::Service;
use super::command::Command;
use super::desired::Desired;
use crate::config::Rule;
use crate::state::Origin;

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
        let own = self.requests.override_of(path);
        let mut desired = match (matched, own) {
            (Some(matched), _) => Desired {
                overlap: matched.overlap.map(|rule| rule.name.clone()),
                ..self.desired_of_rule(path, matched.rule)
            },
            (None, Some(_)) => self.desired_foreign(path, path, Knobs::default()),
            (None, None) => return None,
        };
        if let Some(set) = own {
            let policy = &mut desired.policy;
            policy.knobs = policy.knobs.overlaid(&set.knobs);
            policy.is_scheduled = self.enforcement.planner.schedules(set.is_scheduled);
            desired.best_effort |= set.best_effort;
            desired.origin = Origin::CommandLine;
        }
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
        if let Some(set) = self.requests.override_of(&rule.name) {
            desired.policy.knobs = desired.knobs().overlaid(&set.knobs);
            desired.best_effort = set.best_effort;
            desired.origin = Origin::CommandLine;
        }
        desired
    }

    pub(super) fn desired_of_command(&self, name: &str, command: &Command) -> Desired {
        let mut desired = command.desired(name);
        let is_scheduled = &mut desired.policy.is_scheduled;
        *is_scheduled = self.enforcement.planner.schedules(*is_scheduled);
        desired
    }

    /// Updates the desired state of the groups of all commands.
    pub(super) fn request_commands(&mut self) {
        let commands = self.requests.commands();
        let desired: Vec<Desired> = commands
            .map(|(name, command)| self.desired_of_command(name, command))
            .collect();
        for desired in desired {
            self.table
                .set_desired(&desired.group.clone(), Some(desired));
        }
    }
}
