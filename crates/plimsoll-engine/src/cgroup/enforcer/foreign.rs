//! Putting foreign cgroups into force, many at once.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;

use plimsoll_cgroupfs::{CpuGroup, Version};

use super::CgroupEnforcer;
use crate::cgroup::change::{Change, folder_of};
use crate::cgroup::group::foreign::check::check_one_cgroup;
use crate::cgroup::group::foreign::put_back;
use crate::cgroup::group::layout::Layout;
use crate::cgroup::group::{Group, Origin};
use crate::cgroup::place::{explained, give_controller};
use crate::error::{EngineError, Result};
use crate::group_policy::GroupPolicy;
use crate::journal::Entry;
use crate::undo::UndoReport;

/// Number of groups that are prepared and recorded at once: a prepared change takes memory until it
/// is made.
const TOGETHER_MAX: usize = 1_000;

impl CgroupEnforcer {
    /// Puts foreign cgroups into force. Each succeeds or fails by itself.
    pub(super) fn put_foreign(&mut self, policies: &[&GroupPolicy]) -> Vec<Result<()>> {
        let chunks = policies.chunks(TOGETHER_MAX);
        chunks.flat_map(|some| self.put_some(some)).collect()
    }

    fn put_some(&mut self, policies: &[&GroupPolicy]) -> Vec<Result<()>> {
        self.put_back_removed(policies);
        let levelled = self.levelled_with(policies);
        let prepared = policies
            .iter()
            .map(|policy| self.prepare(policy, &levelled));
        let mut prepared: Vec<Result<(Change, bool)>> = prepared.collect();
        self.record_all(&mut prepared);
        let make = |(prepared, policy): (Result<(Change, bool)>, &&GroupPolicy)| {
            let done =
                prepared.and_then(|(change, is_new)| self.make_change(policy, change, is_new));
            if done.is_err()
                && let Some(present) = self.groups.get(&*policy.name)
            {
                present.follow_headroom(&self.context.headroom);
            }
            done
        };
        prepared.into_iter().zip(policies).map(make).collect()
    }

    /// Lists the folders of foreign cgroups that have a nice level of their own once these are in
    /// force; none if no level is given.
    fn levelled_with(&self, policies: &[&GroupPolicy]) -> BTreeSet<PathBuf> {
        let hierarchy = &self.context.hierarchy;
        let folder = |policy: &GroupPolicy| hierarchy.cpu_folder(&policy.path());
        let mut levelled = BTreeSet::new();
        if policies.iter().all(|policy| policy.knobs.nice.is_none()) {
            return levelled;
        }
        let present = self.groups.values();
        let present = present.filter(|group| group.is_foreign() && group.knobs.nice.is_some());
        levelled.extend(present.map(|group| folder_of(group.cgroup())));
        for policy in policies {
            match policy.knobs.nice {
                Some(_) => levelled.insert(folder(policy)),
                None => levelled.remove(&folder(policy)),
            };
        }
        levelled
    }

    /// Makes a change. `is_new`: nothing of ours is in force for the cgroup yet: it is in no group,
    /// and no earlier owner has left it limited.
    fn make_change(&mut self, policy: &GroupPolicy, change: Change, is_new: bool) -> Result<()> {
        let restores = self.context.journal.restores();
        let done = change.execute();
        match done.and_then(|()| change.reset_levels(restores)) {
            Ok(()) => self.take(policy, change, is_new),
            Err(error) => Err(self.give_up(policy, &change, is_new, error)),
        }
    }

    /// Puts back the rest of removed cgroups, such as the levels of their tasks, in whose places
    /// there are others now: values of a removed cgroup are not the originals of another. Puts back
    /// renamed cgroups, too: our values under the old name are not the originals under the new one.
    /// Before any change is planned, which may rest on such a level.
    fn put_back_removed(&mut self, policies: &[&GroupPolicy]) {
        let restores = self.context.journal.restores();
        let is_removed = |group: &CpuGroup| {
            let inode = restores.held(&folder_of(group)).inode;
            let found = group.clone().bound_to(inode).check_exists();
            inode.is_some() && found.is_err_and(|error| error.is_gone())
        };
        let is_new = |policy: &&&GroupPolicy| !self.groups.contains_key(&*policy.name);
        let new = policies.iter().filter(is_new);
        let groups = new.map(|policy| CpuGroup::at(&self.context.hierarchy, policy.path()));
        let removed = groups.clone().filter(is_removed);
        // One may be removed and renamed at once.
        let mut folders: BTreeSet<PathBuf> = removed.map(|group| folder_of(&group)).collect();
        // v2 renames none, and may hold thousands.
        if self.context.hierarchy.version() == Version::V1 {
            let known = |group: CpuGroup| {
                let folder = folder_of(&group);
                Some((group.bound().ok()?.inode()?, folder))
            };
            let present: HashMap<u64, PathBuf> = groups.filter_map(known).collect();
            let renamed = restores.held.iter().filter(|(folder, held)| {
                let now = held.inode.and_then(|inode| present.get(&inode));
                now.is_some_and(|now| now != *folder)
            });
            folders.extend(renamed.map(|(folder, _)| folder.clone()));
        }
        if !folders.is_empty() {
            let folders: Vec<PathBuf> = folders.into_iter().collect();
            put_back(&folders, &mut self.context, &mut UndoReport::default());
        }
    }

    /// Reads the files of a cgroup, and plans the writes. Returns also whether nothing of ours is in
    /// force for it yet.
    fn prepare(
        &mut self,
        policy: &GroupPolicy,
        levelled: &BTreeSet<PathBuf>,
    ) -> Result<(Change, bool)> {
        check_one_cgroup(&policy.knobs)?;
        let present = self.groups.get(&*policy.name);
        let is_there = present.is_some();
        let group = match present {
            Some(present) if present.is_foreign() => present.cgroup().clone(),
            Some(_) => {
                return Err(EngineError::NameTaken {
                    name: policy.name.clone(),
                });
            }
            None => self.new_cgroup(policy)?,
        };
        let is_left = self.is_left(&policy.name);
        let inode = self
            .context
            .journal
            .restores()
            .held(&folder_of(&group))
            .inode;
        if inode.is_some() {
            // Another may have come since.
            group.clone().bound_to(inode).check_exists()?;
        }
        // The controller may be off since.
        give_controller(&group, &mut self.context.journal)?;
        let yields = self.yields(policy);
        if !yields {
            // Before the quota is read and put back: the loop must not change it any more.
            self.context.headroom.remove(&policy.name);
        }
        let restores = self.context.journal.restores();
        let change = Change::plan_foreign(&group, restores, &policy.knobs, yields, levelled)?;
        Ok((change, !is_there && !is_left))
    }

    fn yields(&self, policy: &GroupPolicy) -> bool {
        let context = &self.context;
        context.yields(&policy.knobs, policy.is_scheduled, true)
    }

    /// Finds the cgroup of a new group. From here on this cgroup is meant, even if another takes its
    /// path meanwhile.
    fn new_cgroup(&self, policy: &GroupPolicy) -> Result<CpuGroup> {
        let path = policy.path();
        if path.as_os_str().is_empty() {
            return Err(EngineError::NoTarget {
                target: "/".into(),
                what: "cgroup with knobs",
            });
        }
        let group = CpuGroup::at(&self.context.hierarchy, &path).bound()?;
        self.context.hierarchy.check_writable(&path)?;
        Ok(group)
    }

    /// Records the changes of all groups at once. If that fails, so do all groups that need it.
    fn record_all(&mut self, prepared: &mut [Result<(Change, bool)>]) {
        let ready = prepared.iter().flatten();
        let together: Vec<Entry> = ready
            .flat_map(|(change, _)| change.entries.iter().cloned())
            .collect();
        if let Err(error) = self.context.journal.record(&together) {
            let needs_it = |one: &&mut Result<(Change, bool)>| {
                one.as_ref()
                    .is_ok_and(|(change, _)| !change.entries.is_empty())
            };
            for one in prepared.iter_mut().filter(needs_it) {
                *one = Err(copy_of(&error));
            }
        }
    }

    fn take(&mut self, policy: &GroupPolicy, change: Change, is_new: bool) -> Result<()> {
        let cgroup = change.group.clone();
        change.note_success(&mut self.context.journal);
        let (name, knobs) = (&*policy.name, &policy.knobs);
        let layout = Layout::of_foreign(cgroup, knobs, self.yields(policy));
        let (origin, is_scheduled) = (Origin::Foreign, policy.is_scheduled);
        let mut group = Group::new(name, origin, knobs.clone(), is_scheduled, layout);
        if let Some(present) = self.groups.remove(name) {
            group.loops = present.loops;
        }
        let started = group.start_loops(&self.context);
        match &started {
            Err(_) if is_new => group.undo(&mut self.context, &mut UndoReport::default()),
            _ => self.insert(group),
        }
        started
    }

    /// Takes back what was noted of a change that failed: all, if nothing of ours is in force.
    fn give_up(
        &mut self,
        policy: &GroupPolicy,
        change: &Change,
        is_new: bool,
        error: EngineError,
    ) -> EngineError {
        let error = explained(&change.group, &policy.knobs, error);
        change.note_levels(&mut self.context.journal);
        if is_new {
            // The first error tells more.
            let mut report = UndoReport::default();
            put_back(&[folder_of(&change.group)], &mut self.context, &mut report);
        } else {
            change.note_failure(&mut self.context.journal);
        }
        error
    }
}

/// Copies the failure of a shared write, for each group that shares the journal.
fn copy_of(error: &EngineError) -> EngineError {
    match error {
        EngineError::Journal { path, source } => EngineError::Journal {
            path: path.clone(),
            source: source.raw_os_error().map_or_else(
                || io::Error::new(source.kind(), source.to_string()),
                io::Error::from_raw_os_error,
            ),
        },
        other => EngineError::Group {
            name: "journal".into(),
            problem: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_to_all_who_share_the_journal() {
        let full = EngineError::Journal {
            path: "/run/x".into(),
            source: io::Error::from_raw_os_error(libc::ENOSPC),
        };
        assert_eq!(copy_of(&full).to_string(), full.to_string());
    }
}
