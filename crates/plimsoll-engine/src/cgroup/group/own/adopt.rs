//! Adoption of a group that an earlier owner has left.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{Hierarchy, os};

use super::{Common, Layout, Own};
use crate::error::Result;
use crate::journal::{Entry, Header, KeptJournal};
use crate::knobs::Knobs;
use crate::undo;

/// Cgroup of one layout, as the journal has it.
struct Created<'a> {
    folders: &'a [PathBuf],
    evacuate_to: &'a [PathBuf],
    generation: u32,
}

/// Group of an earlier owner that can be continued.
pub(in crate::cgroup) struct Adoptable {
    common: Common,
    generation: u32,
    /// Layouts that were replaced, and still have processes.
    behind: Vec<Layout>,
    evacuate_to: Vec<PathBuf>,
}

impl Own {
    /// Takes over the group of a journal.
    pub fn adopt(found: Adoptable, journal: KeptJournal) -> (Common, Self) {
        let mut groups = journal.restores().groups.values();
        let nice_before = groups.next().map(|group| group.old);
        let mut own = Self::with_journal(journal, found.evacuate_to, nice_before);
        own.generation = found.generation;
        own.behind = found.behind;
        (found.common, own)
    }

    /// Returns the place to which the processes of a cgroup of this group go in the end. `None`: the
    /// cgroup is not of this group.
    pub fn home_of(&self, folder: &Path) -> Option<Vec<PathBuf>> {
        home_of(&self.journal, folder)
    }

    /// Moves a process to the place to which the group's processes go when the group ends.
    pub fn evacuate(&self, pid: i32) -> Result<()> {
        undo::move_back(&self.evacuate_to, pid)
    }
}

impl Adoptable {
    /// Finds the group of a journal as it is. `None`: its cgroups are not there, so that the group
    /// cannot be continued, and has to be undone.
    pub fn find(
        hierarchy: &Arc<Hierarchy>,
        header: &Header,
        journal: &KeptJournal,
        is_scheduled: bool,
    ) -> Option<Self> {
        let entries = &journal.restores().others;
        let knobs_of = |wanted: u32| {
            let mut changes = entries.iter().rev();
            let changed = changes.find_map(|entry| match entry {
                Entry::Change { knobs, generation } if *generation == wanted => Some(knobs),
                _ => None,
            });
            changed.unwrap_or(&header.knobs).clone()
        };
        let created = created(journal);
        // The cgroups show whether the group yields to headroom.
        let layouts_of = |one: &Created<'_>, knobs: &Knobs| {
            [false, true]
                .map(|yields| Layout::new(hierarchy, &header.name, one.generation, knobs, yields))
        };
        // The last layout that is whole: an owner that was killed while it built another has left
        // both.
        let (layout, knobs, one) = created.iter().rev().find_map(|one| {
            let knobs = knobs_of(one.generation);
            let mut layouts = layouts_of(one, &knobs).into_iter();
            let layout = layouts.find(|layout| is_whole(layout, one.folders))?;
            Some((layout, knobs, one))
        })?;
        let generation = created.iter().map(|one| one.generation).max();
        // The next change sets the limits, and then moves the processes of the other layouts over:
        // the owner may have died before it had set the limits.
        let others = created.iter().filter(|other| other.folders != one.folders);
        let behind = others
            .filter(|other| other.folders.iter().any(|folder| os::exists(folder)))
            .map(|other| {
                let [plain, yielding] = layouts_of(other, &knobs_of(other.generation));
                match is_whole(&yielding, other.folders) {
                    true => yielding,
                    false => plain,
                }
            })
            .collect();
        Some(Self {
            generation: generation.unwrap_or(0),
            behind,
            evacuate_to: one.evacuate_to.to_vec(),
            common: Common::new(&header.name, knobs, is_scheduled, layout),
        })
    }
}

/// Returns the place to which the processes of a cgroup of a journal's group go in the end. `None`:
/// the cgroup is not of this group.
pub(in crate::cgroup) fn home_of(journal: &KeptJournal, folder: &Path) -> Option<Vec<PathBuf>> {
    let mut created = created(journal).into_iter();
    let around = created.find(|one| one.folders.iter().any(|top| folder.starts_with(top)));
    around.map(|one| one.evacuate_to.to_vec())
}

/// Lists the cgroups that were created for the group, in order.
fn created(journal: &KeptJournal) -> Vec<Created<'_>> {
    let mut created = Vec::new();
    for entry in &journal.restores().others {
        if let Entry::Create {
            folders,
            evacuate_to,
        } = entry
        {
            created.push(Created {
                folders,
                evacuate_to,
                generation: folders.first().map_or(0, |folder| generation_of(folder)),
            });
        }
    }
    created
}

/// Returns the number behind the `+` of a rebuilt group's folder; 0: the group was not rebuilt.
fn generation_of(folder: &Path) -> u32 {
    let name = folder.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.split_once('+'));
    number
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(0)
}

/// Returns whether all cgroups of a layout exist, without those of another layout below them.
fn is_whole(layout: &Layout, folders: &[PathBuf]) -> bool {
    let has_all = layout.groups().iter().all(|group| group.exists());
    let below = layout.leaf.children().unwrap_or_default();
    let has_more = below.iter().any(|group| Layout::is_inner(group.path()));
    layout.top.folders() == folders && has_all && !has_more
}
