//! Taking cgroups, many at once.

use std::collections::HashSet;
use std::path::Path;

use plimsoll_cgroupfs::CpuGroup;

use super::HeldGroups;
use super::check::check_held;
use super::group::{Held, Prepared, folder_of};
use super::kept::copy_of;
use super::values::released;
use crate::cgroup::enforcer::no_group;
use crate::cgroup::managed::explain_busy;
use crate::control::headroom::HeadroomDuty;
use crate::error::{EngineError, Result};
use crate::journal::{Entry, FileRestore};
use crate::policy_set::{GroupPolicy, Selector};
use crate::runtime::RuntimeFolder;
use crate::undo::{self, UndoReport};

/// So many are prepared and written down at once: what is prepared takes memory
/// until it is done.
const TOGETHER_MAX: usize = 1_000;

/// The cgroup that a group is.
fn path_of(policy: &GroupPolicy) -> Result<&Path> {
    match &policy.selector {
        Selector::Cgroup(path) => Ok(path),
        _ => Err(no_group(&policy.name)),
    }
}

impl HeldGroups {
    /// Holds cgroups and sets their knobs. Each is held or refused by itself.
    pub fn add_all(&mut self, policies: &[&GroupPolicy], duty: &HeadroomDuty) -> Vec<Result<()>> {
        let mut results = Vec::with_capacity(policies.len());
        let mut again = Vec::new();
        for some in policies.chunks(TOGETHER_MAX) {
            self.add_some(some, duty, &mut results, &mut again);
        }
        // The kernel refuses some values until those of a cgroup above or
        // below are there.
        for (index, prepared) in again {
            results[index] = match prepared.execute() {
                Ok(()) => self.take_new(prepared, duty),
                Err(error) => self.give_up(prepared, error),
            };
        }
        for (policy, result) in policies.iter().zip(&results) {
            if let (Err(_), Ok(path)) = (result, path_of(policy)) {
                let group = CpuGroup::at(&self.hierarchy, path);
                self.left.want(&policy.name, &group);
            }
        }
        results
    }

    fn add_some(
        &mut self,
        policies: &[&GroupPolicy],
        duty: &HeadroomDuty,
        results: &mut Vec<Result<()>>,
        again: &mut Vec<(usize, Prepared)>,
    ) {
        let nr_groups = self.groups.len();
        if let Some(journal) = &mut self.journal {
            journal.tidy(nr_groups);
        }
        let mut prepared: Vec<Result<Prepared>> = Vec::with_capacity(policies.len());
        let mut names = HashSet::new();
        for policy in policies {
            prepared.push(if names.insert(&policy.name) {
                self.prepare_new(policy)
            } else {
                Err(name_taken(&policy.name))
            });
        }
        self.record_all(&mut prepared);
        for prepared in prepared {
            results.push(match prepared {
                Ok(prepared) => match prepared.execute() {
                    Ok(()) => self.take_new(prepared, duty),
                    Err(error) if undo::is_refused(&error) => {
                        again.push((results.len(), prepared));
                        Err(error)
                    }
                    Err(error) => self.give_up(prepared, error),
                },
                Err(error) => Err(error),
            });
        }
    }

    /// Looks at what is there now, and finds out what has to be done.
    fn prepare_new(&mut self, policy: &GroupPolicy) -> Result<Prepared> {
        let path = path_of(policy)?;
        check_held(&policy.knobs)?;
        let group = CpuGroup::at(&self.hierarchy, path);
        self.check_new(&policy.name, &group)?;
        self.hierarchy.check_writable(path)?;
        let was_another = self.left.forget_another(&group);
        let adopted = self.left.adopt(&policy.name, &group)?;
        let is_new = adopted.is_none();
        let held = adopted.unwrap_or_else(|| Held::new(&policy.name, &group));
        give_controller(&group, &self.runtime)?;
        let mut prepared = Prepared::new(group, held.known(), &policy.knobs)?;
        if let (true, Some(inode)) = (is_new, prepared.group.identity()) {
            let folder = folder_of(&prepared.group);
            let hold = Entry::Hold {
                folder: folder.clone(),
                inode,
            };
            prepared.entries.insert(0, hold);
            if was_another {
                // Its values are no originals of this one's.
                prepared.entries.insert(0, released(&folder));
            }
        }
        prepared.name = policy.name.as_str().into();
        prepared.held = held;
        Ok(prepared)
    }

    fn check_new(&self, name: &str, group: &CpuGroup) -> Result<()> {
        if group.path().as_os_str().is_empty() {
            return Err(EngineError::NoTarget {
                target: "/".into(),
                what: "cgroup with knobs",
            });
        }
        if self.contains(name) {
            return Err(name_taken(name));
        }
        let shown = format!("/{}", group.path().display());
        if name == shown {
            // All others that are named by their path are other cgroups.
            return Ok(());
        }
        let mut all = self.groups.iter();
        match all.find(|(name, held)| held.is_at(name, group.path())) {
            Some((name, _)) => Err(EngineError::CgroupTaken {
                target: shown,
                name: name.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Writes down at once what all are about to do. If that cannot be, all fail.
    fn record_all(&mut self, prepared: &mut [Result<Prepared>]) {
        let ready = prepared.iter_mut().flatten();
        let together: Vec<Entry> = ready
            .flat_map(|ready| std::mem::take(&mut ready.entries))
            .collect();
        let journal = self.journal.as_mut().ok_or_else(super::has_ended);
        if let Err(error) = journal.and_then(|journal| journal.record(&together)) {
            for one in prepared.iter_mut().filter(|one| one.is_ok()) {
                *one = Err(copy_of(&error));
            }
        }
    }

    fn take_new(&mut self, prepared: Prepared, duty: &HeadroomDuty) -> Result<()> {
        let (name, group) = (prepared.name.clone(), prepared.group.clone());
        let taken = self.take(prepared, duty);
        self.left.settle(&group);
        if taken.is_err() {
            let _ = self.remove(&name, duty);
        }
        taken
    }

    /// A new group that could not be made so.
    fn give_up(&mut self, prepared: Prepared, error: EngineError) -> Result<()> {
        if self.left.contains(&prepared.group) {
            // It stays as an earlier owner has left it, and is tried again.
            return Err(error);
        }
        let mut noted = vec![prepared.released()];
        // What the kernel has not taken back at once.
        let files = prepared.values.restores(&prepared.group);
        let refused = undo::try_restore_files(&files, &mut UndoReport::default());
        self.late
            .extend(refused.into_iter().map(|(file, _)| file.clone()));
        // Of when it was held before.
        let folder = folder_of(&prepared.group);
        let is_of_it = |file: &&FileRestore| file.path.parent() == Some(&folder);
        let late = self.late.iter().filter(is_of_it);
        noted.extend(late.map(FileRestore::entry));
        if let Some(journal) = &mut self.journal {
            journal.note(noted);
        }
        Err(error)
    }
}

/// v2: gives a cgroup the cpu controller if it has none, from the nearest above
/// it that has.
pub(super) fn give_controller(group: &CpuGroup, runtime: &RuntimeFolder) -> Result<()> {
    if group.has_weight() {
        return Ok(());
    }
    // Says so if it is gone.
    group.check_exists()?;
    let mut missing = Vec::new();
    let mut above = group.parent();
    while let Some(parent) = above {
        if parent.children_enabled()? {
            break;
        }
        above = parent.parent();
        missing.push(parent);
    }
    for parent in missing.into_iter().rev() {
        runtime.share(&[parent.subtree_control()], &[])?;
        parent
            .enable_children()
            .map_err(|error| explain_busy(error, &parent))?;
    }
    Ok(())
}

fn name_taken(name: &str) -> EngineError {
    EngineError::NameTaken { name: name.into() }
}
