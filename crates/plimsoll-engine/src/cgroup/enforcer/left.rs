//! Groups that an earlier owner, or enforcer, has left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::name;

use super::CgroupEnforcer;
use crate::cgroup::group::Group;
use crate::cgroup::group::foreign::put_back;
use crate::cgroup::group::own;
use crate::error::{EngineError, Result};
use crate::group_policy::GroupPolicy;
use crate::undo::{self, UndoReport};

impl CgroupEnforcer {
    /// Returns whether there is such a group, or an earlier owner has left one.
    pub fn knows(&self, name: &str) -> bool {
        let own = &self.context.journal.restores().own;
        self.groups.contains_key(name) || own.contains_key(name) || self.is_left(name)
    }

    /// Lists the folders of foreign cgroups that are in the journal alone: an earlier owner has left
    /// them limited, and no group has taken them over.
    pub(super) fn left(&self) -> impl Iterator<Item = (&PathBuf, String)> {
        let held = self.context.journal.restores().held.iter();
        let held = held.filter(|(_, held)| !held.refused);
        let shown = held.map(|(folder, _)| (folder, self.shown(folder)));
        shown.filter(|(_, name)| !self.groups.contains_key(&**name))
    }

    /// Returns whether an earlier owner has left a foreign cgroup of that name.
    pub(super) fn is_left(&self, name: &str) -> bool {
        // That of an own group has no slash in front.
        let path = name.strip_prefix('/').map(name::path_of);
        let folder = path.map(|path| self.context.hierarchy.mount_point().join(path));
        let held = folder.and_then(|it| self.context.journal.restores().held.get(&it));
        held.is_some_and(|held| !held.refused) && !self.groups.contains_key(name)
    }

    /// Takes over a group of an earlier owner; one that cannot be continued is undone. `false`:
    /// there is no such group, or it was undone.
    pub(super) fn adopt(&mut self, policy: &GroupPolicy) -> Result<bool> {
        let name = &policy.name;
        let Some(left) = self.context.journal.restores().own.get(name) else {
            return Ok(false);
        };
        let hierarchy = &self.context.hierarchy;
        if let Some(group) = Group::adopt(hierarchy, name, left, policy.is_scheduled) {
            let gone = left.gone(group.layout.generation);
            if !gone.is_empty() {
                own::note_gone(name, &gone, &mut self.context);
            }
            self.insert(group);
            return Ok(true);
        }
        let mut report = UndoReport::default();
        own::undo(name, &mut self.context, &mut report);
        match self.is_left_own(name) {
            true => Err(EngineError::Group {
                name: name.clone(),
                problem: format!("is left from before: {}", report.problems.join("; ")),
            }),
            false => Ok(false),
        }
    }

    /// Returns whether a group of our own is in the journal alone: an earlier owner has left it, or
    /// the kernel did not let us undo it.
    pub(super) fn is_left_own(&self, name: &str) -> bool {
        let own = &self.context.journal.restores().own;
        own.contains_key(name) && !self.groups.contains_key(name)
    }

    /// Returns the folder of the outermost cgroup of an own group that was left and can be
    /// continued.
    pub fn left_folder(&self, name: &str) -> Option<PathBuf> {
        let own = self.context.journal.restores().own.get(name);
        let own = own.filter(|_| !self.groups.contains_key(name))?;
        let layout = own::adopt::whole_layout(&self.context.hierarchy, name, own)?;
        Some(layout.top.cpu_file(""))
    }

    /// Puts back the groups of an earlier owner that were not taken over and that are not wanted. To
    /// be called when all groups have been added. A wanted one stays limited as it was left, until
    /// it is added or removed.
    pub fn finish_adoption(&mut self, wanted: &BTreeSet<String>) -> UndoReport {
        let mut report = UndoReport::default();
        self.put_left_back(|name| !wanted.contains(name), &mut report);
        if let Err(error) = self.leave_groups(&mut report) {
            report.problems.push(error.to_string());
        }
        let mut unwanted: Vec<String> = Vec::new();
        unwanted.extend(self.context.journal.restores().own.keys().cloned());
        unwanted.retain(|name| self.is_left_own(name) && !wanted.contains(name));
        for name in unwanted {
            own::undo(&name, &mut self.context, &mut report);
        }
        self.context.remove_parents();
        report
    }

    /// Moves this process out of groups that it took over: a command of one of them may have
    /// started it, and no group is to limit the owner.
    fn leave_groups(&self, report: &mut UndoReport) -> Result<()> {
        let pid = std::process::id().cast_signed();
        // The command of one group may have come from another.
        for _ in 0..self.groups.len() {
            let place = self.context.hierarchy.cgroup_of(pid)?;
            let of_group = |group: &&Group| place.starts_with(group.cgroup().path());
            let mut own = self.groups.values().filter(|group| !group.is_foreign());
            let own_restores = &self.context.journal.restores().own;
            let around = own.find(of_group);
            match around.and_then(|group| own_restores.get(&*group.name)) {
                Some(own) => undo::move_back(&own.evacuate_to, pid, report)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Puts back the foreign cgroups of an earlier owner whose shown path `is_meant`.
    pub(super) fn put_left_back(
        &mut self,
        is_meant: impl Fn(&str) -> bool,
        report: &mut UndoReport,
    ) {
        let meant = self.left().filter(|(_, name)| is_meant(name));
        let (folders, names): (Vec<PathBuf>, Vec<String>) =
            meant.map(|(folder, name)| (folder.clone(), name)).unzip();
        self.put_back_with_refused(&folders, report);
        report.undone.extend(names);
    }

    /// Puts foreign cgroups back, and those that the kernel has refused so far: it may take some
    /// values only after others. Not while a change is planned, which may rest on a refused value.
    pub(super) fn put_back_with_refused(&mut self, folders: &[PathBuf], report: &mut UndoReport) {
        let refused = &self.context.journal.restores().refused;
        let all: BTreeSet<PathBuf> = refused.iter().chain(folders).cloned().collect();
        let all: Vec<PathBuf> = all.into_iter().collect();
        put_back(&all, &mut self.context, report);
    }

    /// Returns the path of a cgroup, by its folder, as users see it.
    pub(super) fn shown(&self, folder: &Path) -> String {
        let path = folder.strip_prefix(self.context.hierarchy.mount_point());
        name::shown(path.unwrap_or(folder))
    }
}
