//! Adding foreign cgroups, many at once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{CpuGroup, Version, name};

use super::{CgroupEnforcer, no_group};
use crate::cgroup::group::common::Common;
use crate::cgroup::group::foreign::check::check_one_cgroup;
use crate::cgroup::group::foreign::prepared::Prepared;
use crate::cgroup::group::foreign::{folder_of, put_back};
use crate::cgroup::group::layout::Layout;
use crate::cgroup::group::{Group, Origin};
use crate::cgroup::place::{explained, give_controller};
use crate::error::{EngineError, Result};
use crate::group_policy::{GroupPolicy, Selector};
use crate::journal::Entry;
use crate::knobs::Knobs;
use crate::undo::UndoReport;

/// Number of groups that are prepared and recorded at once: a prepared change takes memory until it
/// is made.
const TOGETHER_MAX: usize = 1_000;

struct New<'a> {
    policy: &'a GroupPolicy,
    prepared: Prepared,
    /// Whether an earlier owner has left this very cgroup: then it stays limited if the change
    /// fails, and is tried again.
    was_left: bool,
}

/// Returns the path of a group's foreign cgroup.
fn path_of(policy: &GroupPolicy) -> Result<&Path> {
    match &policy.selector {
        Selector::Cgroup(path) => Ok(path),
        Selector::Process(_) => Err(no_group(&policy.name)),
    }
}

impl CgroupEnforcer {
    /// Adds foreign cgroups and sets their knobs. Each is added or refused by itself.
    pub(super) fn add_foreign(&mut self, policies: &[&GroupPolicy]) -> Vec<Result<()>> {
        let chunks = policies.chunks(TOGETHER_MAX);
        chunks.flat_map(|some| self.add_some(some)).collect()
    }

    fn add_some(&mut self, policies: &[&GroupPolicy]) -> Vec<Result<()>> {
        self.put_back_removed(policies);
        let mut names = HashSet::new();
        let prepared = policies
            .iter()
            .map(|policy| match names.insert(&policy.name) {
                true => self.prepare_new(policy),
                false => Err(name_taken(&policy.name)),
            });
        let mut prepared: Vec<Result<New<'_>>> = prepared.collect();
        self.record_all(&mut prepared);
        let make = |new: Result<New<'_>>| {
            let new = new?;
            match new.prepared.execute(self.context.journal.restores()) {
                Ok(()) => self.take_new(new),
                Err(error) => self.give_up(&new, error),
            }
        };
        prepared.into_iter().map(make).collect()
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
        let paths = policies.iter().filter_map(|policy| path_of(policy).ok());
        let groups = paths.map(|path| CpuGroup::at(&self.context.hierarchy, path));
        let removed = groups.clone().filter(is_removed);
        let mut folders: Vec<PathBuf> = removed.map(|group| folder_of(&group)).collect();
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
            self.left.retain(|folder| !folders.contains(folder));
            put_back(&folders, &mut self.context, &mut UndoReport::default());
        }
    }

    /// Reads the files of a cgroup, and plans the writes.
    fn prepare_new<'a>(&mut self, policy: &'a GroupPolicy) -> Result<New<'a>> {
        let path = path_of(policy)?;
        check_one_cgroup(&policy.knobs)?;
        let group = CpuGroup::at(&self.context.hierarchy, path);
        self.check_new(&policy.name, &group)?;
        // From here on this cgroup is meant, even if another takes its path meanwhile.
        let group = group.bound()?;
        self.context.hierarchy.check_writable(path)?;
        give_controller(&group, &self.context.runtime)?;
        let yields = self.yields(policy);
        let folder = folder_of(&group);
        let was_left = self.left.contains(&folder);
        let restores = self.context.journal.restores();
        let known = restores.held(&folder);
        if known.inode.is_some() {
            // Another may have come since.
            group.clone().bound_to(known.inode).check_exists()?;
        }
        let mut prepared = Prepared::new(group, known, restores, &policy.knobs, yields)?;
        if let (false, Some(inode)) = (was_left, prepared.group.inode()) {
            prepared.entries.insert(0, Entry::Hold { folder, inode });
        }
        Ok(New {
            policy,
            prepared,
            was_left,
        })
    }

    fn yields(&self, policy: &GroupPolicy) -> bool {
        let context = &self.context;
        context.yields(&policy.knobs, policy.is_scheduled, true)
    }

    fn check_new(&self, name: &str, group: &CpuGroup) -> Result<()> {
        if group.path().as_os_str().is_empty() {
            return Err(EngineError::NoTarget {
                target: "/".into(),
                what: "cgroup with knobs",
            });
        }
        if self.groups.contains_key(name) {
            return Err(name_taken(name));
        }
        let shown = name::shown(group.path());
        if name == shown {
            // Every other group that is named by its path is another cgroup.
            return Ok(());
        }
        let is_same =
            |(_, other): &(_, &Group)| other.is_foreign() && other.cgroup().path() == group.path();
        match self.groups.iter().find(is_same) {
            Some((name, _)) => Err(EngineError::CgroupTaken {
                target: shown,
                name: name.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Records the changes of all groups at once. If that fails, all of them fail.
    fn record_all(&mut self, prepared: &mut [Result<New<'_>>]) {
        let ready = prepared.iter_mut().flatten();
        let together: Vec<Entry> = ready
            .flat_map(|new| std::mem::take(&mut new.prepared.entries))
            .collect();
        if let Err(error) = self.context.journal.record(&together) {
            for one in prepared.iter_mut().filter(|one| one.is_ok()) {
                *one = Err(copy_of(&error));
            }
        }
    }

    fn take_new(&mut self, new: New<'_>) -> Result<()> {
        let New {
            policy,
            prepared,
            was_left,
        } = new;
        let cgroup = prepared.group.clone();
        let knobs: &Knobs = &policy.knobs;
        prepared.note_success(&mut self.context.journal);
        let layout = Layout::of_foreign(cgroup.clone(), knobs, self.yields(policy));
        let mut group = Group {
            common: Common::new(&policy.name, knobs.clone(), policy.is_scheduled, layout),
            origin: Origin::Foreign,
        };
        let started = group.start_loops(&self.context);
        self.left.remove(&folder_of(&cgroup));
        match &started {
            Err(_) if was_left => self.insert(group),
            Err(_) => group.undo(&mut self.context, &mut UndoReport::default()),
            Ok(()) => self.insert(group),
        }
        started
    }

    /// Puts a cgroup back whose change failed.
    fn give_up(&mut self, new: &New<'_>, error: EngineError) -> Result<()> {
        let group = &new.prepared.group;
        let error = explained(group, &new.policy.knobs, error);
        if new.was_left {
            new.prepared.note_failure(&mut self.context.journal);
        } else {
            let folder = folder_of(group);
            // The first error tells more.
            let mut report = UndoReport::default();
            put_back(&[folder], &mut self.context, &mut report);
        }
        Err(error)
    }
}

fn name_taken(name: &str) -> EngineError {
    EngineError::NameTaken { name: name.into() }
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
