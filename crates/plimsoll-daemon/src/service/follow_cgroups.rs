//! Events of cgroups.

use plimsoll_cgroupfs::{name::path_of, os};
use plimsoll_engine::action::Action;
use plimsoll_engine::own_groups;

use super::Service;
use super::parts::GroupEntry;
use crate::watch::CgroupChange;

impl Service {
    /// Follows the events of cgroups, unless the watch rests.
    pub(super) fn follow_cgroups(&mut self) {
        match self.cgroups.changes(os::now()) {
            Ok(events) => {
                self.notices.counters.events_lost += events.lost;
                self.take_changes(events.changes);
            }
            Err(error) => {
                let problem = format!("cannot read the events of cgroups: {error}");
                self.notices.note_problem("watch", Some(problem));
            }
        }
        self.notices.note_problem("watches", self.cgroups.problem());
    }

    /// Follows the events of cgroups, also while the watch rests.
    pub(super) fn follow_cgroups_now(&mut self) {
        self.cgroups.end_rest(os::now());
        self.follow_cgroups();
    }

    pub(super) fn take_changes(&mut self, changes: Vec<CgroupChange>) {
        for change in changes {
            match change {
                CgroupChange::Appeared(path) => self.request_cgroup(&path),
                CgroupChange::Gone(path) => {
                    self.external.forget(&path);
                    self.cgroup_has_gone(&path);
                }
                CgroupChange::Written(path) => self.cgroup_was_written(path),
                CgroupChange::Emptied(path) => {
                    let place = path_of(path.trim_start_matches('/'));
                    if let Some(name) = own_groups::group_of(&self.hierarchy, &place) {
                        self.requests.look_at(name, os::now());
                    }
                }
            }
        }
    }

    fn cgroup_was_written(&mut self, path: String) {
        let place = path_of(path.trim_start_matches('/'));
        let names = match own_groups::group_of(&self.hierarchy, &place) {
            Some(name) => vec![name.to_owned()],
            // A parent of groups: its idle mark is part of each.
            None if own_groups::is_own(&self.hierarchy, &place) => {
                let commands = self.requests.commands();
                commands.map(|(name, _)| name.clone()).collect()
            }
            None => vec![path],
        };
        for name in names {
            if self.table.is_applied(&name) {
                self.external.note_write(name, os::now());
            }
        }
    }

    pub(super) fn cgroup_has_gone(&mut self, path: &str) {
        if self.table.get(path).is_some() {
            // At once: a cgroup that appears with the same path is another one.
            self.table.set_desired(path, None);
            self.take_away(path);
            return;
        }
        // An own cgroup that is there was removed and made again by this service.
        if self.folder_exists(path) {
            return;
        }
        let place = path_of(path);
        let Some(name) = own_groups::group_of(&self.hierarchy, &place) else {
            return;
        };
        let is_own = |entry: &GroupEntry| {
            let desired = entry.desired.as_ref();
            entry.applied.is_some() && desired.is_some_and(|desired| !desired.is_foreign())
        };
        if self.table.get(name).is_some_and(is_own) {
            let shown = self.enforcement.enforcer().stock().shown_path(name);
            if shown.is_ok_and(|shown| shown == place) {
                // Undoes the rest of the group, such as nice levels.
                let _ = self.enforcement.make(Action::Remove(name.to_owned()));
                self.table.removed(name);
                self.table.mark_pending(name);
                let text = format!("{path}: was removed by another process; it is made again");
                self.notices.log.warning("removed", &text);
                self.take_back_command(name);
            }
        }
    }
}
