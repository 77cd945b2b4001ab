//! Slots of cgroups in the scheduler's tables.
//!
//! The tables are the only record; they change with the groups locked only. A cgroup has
//! one slot at most. A slot whose cgroup or group is gone is free again.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::CgroupError;
use plimsoll_engine::knobs::Knobs;

use crate::Error;
use crate::bpf_intf::{
    plimsoll_change, plimsoll_group, plimsoll_group_flags_PLIMSOLL_USED as USED,
    plimsoll_limits_PLIMSOLL_GROUPS_MAX as GROUPS_MAX,
    plimsoll_limits_PLIMSOLL_SLOT_DEFAULT as SLOT_DEFAULT,
};
use crate::objects::Objects;
use crate::params;

/// The knobs of the groups to register with the scheduler, by the folder of their cgroup.
pub(crate) type Groups = BTreeMap<PathBuf, Knobs>;

/// The first slot that a group can have.
pub(crate) const FIRST: u32 = SLOT_DEFAULT + 1;

/// Most groups that can have a slot.
pub(crate) const NR_SLOTS: u32 = GROUPS_MAX - FIRST;

/// The kernel's id of a cgroup: the inode of its folder.
pub(crate) fn cgroup_id(folder: &Path) -> Result<u64, CgroupError> {
    let folder_of =
        fs::metadata(folder).map_err(|source| CgroupError::file("find", folder, source))?;
    Ok(folder_of.ino())
}

/// Search for free slots in order: all slots below this number are known to be in use.
#[derive(Debug)]
struct Search(u32);

impl Search {
    fn new() -> Self {
        Self(FIRST)
    }

    /// The lowest slot that is not in use. `is_used` is called in order, and not again once all
    /// were found to be in use.
    fn next(&mut self, nr_used: u32, is_used: impl Fn(u32) -> bool) -> Option<u32> {
        let end = nr_used.max(FIRST);
        let free = (self.0..end).find(|slot| !is_used(*slot));
        let free = free.or_else(|| (end.max(self.0) < GROUPS_MAX).then_some(end.max(self.0)));
        self.0 = free.unwrap_or(GROUPS_MAX);
        free
    }

    fn take(&mut self, slot: u32) {
        self.0 = slot + 1;
    }
}

fn is_used(objects: &Objects, slot: u32) -> bool {
    objects.group(slot).is_some_and(|group| is_in_use(&group))
}

fn is_in_use(group: &plimsoll_group) -> bool {
    group.params.flags & USED != 0
}

/// Assigns slots to cgroups while the lock is held: all slots below the last assigned one
/// stay in use, and need not be checked again.
pub(crate) struct Registrar<'a> {
    objects: &'a Objects,
    groups: &'a Groups,
    /// Mount point of cgroups.
    root: &'a Path,
    search: Search,
    may_collect: bool,
}

impl<'a> Registrar<'a> {
    pub fn new(objects: &'a Objects, groups: &'a Groups, root: &'a Path) -> Self {
        Self {
            objects,
            groups,
            root,
            search: Search::new(),
            may_collect: true,
        }
    }

    /// Returns a registrar that does not collect slots whose cgroup is gone.
    pub fn without_collecting(mut self) -> Self {
        self.may_collect = false;
        self
    }

    /// Assigns a slot to a cgroup, or finds the one that it has, and sets its parameters.
    /// `is_new`: resets the counters of the slot.
    ///
    /// # Errors
    /// When all slots are taken, or the scheduler refuses the parameters.
    pub fn register(&mut self, folder: &Path, knobs: &Knobs, is_new: bool) -> Result<u32, Error> {
        let objects = self.objects;
        let id = cgroup_id(folder)?;
        if let Some(slot) = slot_of(objects, id) {
            apply(objects, slot, is_new, id, knobs)?;
            objects.shared.set_groups_changed();
            return Ok(slot);
        }
        let slot = self.free_slot()?;
        apply(objects, slot, true, id, knobs)?;
        objects.shared.use_slot(slot);
        if let Err(error) = objects.set_slot(id, slot) {
            // The slot would be lost: the map has no entry for it.
            let _ = release(objects, self.groups, slot);
            return Err(error);
        }
        objects.shared.set_groups_changed();
        self.search.take(slot);
        Ok(slot)
    }

    /// The lowest slot that is free, or becomes free by a collection.
    fn free_slot(&mut self) -> Result<u32, Error> {
        if let Some(slot) = self.search_on() {
            return Ok(slot);
        }
        if std::mem::take(&mut self.may_collect)
            && collect(self.objects, self.groups, self.root, None) > 0
        {
            self.search = Search::new();
        }
        self.search_on().ok_or(Error::TooManyGroups(NR_SLOTS))
    }

    fn search_on(&mut self) -> Option<u32> {
        let nr_used = self.objects.shared.nr_slots_used();
        self.search
            .next(nr_used, |slot| is_used(self.objects, slot))
    }
}

/// The slot of a cgroup, which may be gone, by its id.
pub(crate) fn slot_of(objects: &Objects, id: u64) -> Option<u32> {
    objects.slot_of(id).filter(|slot| {
        let group = objects.group(*slot);
        group.is_some_and(|group| is_in_use(&group) && group.params.cgroup_id == id)
    })
}

/// Registers groups with a scheduler that has none yet. A group whose cgroup is gone, or for
/// which no slot is left, is left to the enforcer, which reports it.
pub(crate) fn register_known(objects: &Objects, groups: &Groups, root: &Path) {
    let mut registrar = Registrar::new(objects, groups, root);
    for (folder, knobs) in groups.iter() {
        let _ = registrar.register(folder, knobs, true);
    }
}

fn apply(
    objects: &Objects,
    slot: u32,
    fresh: bool,
    cgroup_id: u64,
    knobs: &Knobs,
) -> Result<(), Error> {
    let mut change = plimsoll_change {
        slot,
        fresh: u32::from(fresh),
        params: params::params_of(knobs, cgroup_id),
    };
    objects.apply(&mut change)
}

pub(crate) fn release(objects: &Objects, _groups: &Groups, slot: u32) -> Result<(), Error> {
    if let Some(group) = objects.group(slot) {
        objects.forget_slot(group.params.cgroup_id);
    }
    objects.apply(&mut plimsoll_change {
        slot,
        fresh: 0,
        params: params::unused(),
    })?;
    objects.shared.set_groups_changed();
    Ok(())
}

/// The ids of the cgroups of these groups, as far as they exist.
pub(crate) fn cgroup_ids(groups: &Groups) -> HashSet<u64> {
    groups.keys().flat_map(|folder| cgroup_id(folder)).collect()
}

/// Frees the slots of cgroups that are gone and, with `kept`, of all cgroups that are not in it.
/// Returns the number of freed slots.
pub(crate) fn collect(
    objects: &Objects,
    groups: &Groups,
    root: &Path,
    kept: Option<&HashSet<u64>>,
) -> usize {
    let Ok(mount) = File::open(root) else {
        return 0;
    };
    let is_left = |slot: &u32| {
        let Some(group) = objects.group(*slot) else {
            return false;
        };
        let id = group.params.cgroup_id;
        is_in_use(&group) && (kept.is_some_and(|kept| !kept.contains(&id)) || is_gone(&mount, id))
    };
    let left = (FIRST..objects.shared.nr_slots_used()).filter(is_left);
    left.filter(|slot| release(objects, groups, *slot).is_ok())
        .count()
}

/// A file handle of the file systems that show cgroups
/// (include/linux/exportfs.h, FILEID_KERNFS).
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    id: [u8; 8],
}

const FILEID_KERNFS: libc::c_int = 0xfe;

fn open_cgroup(mount: &File, id: u64) -> io::Result<OwnedFd> {
    let mut handle = Handle {
        bytes: 8,
        kind: FILEID_KERNFS,
        id: id.to_ne_bytes(),
    };
    // SAFETY: the handle has the layout of `struct file_handle`, says how
    // long it is, and lives until the call returns.
    let file = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut handle,
            libc::O_PATH | libc::O_CLOEXEC,
        )
    };
    match i32::try_from(file) {
        // SAFETY: just opened, and not owned elsewhere.
        Ok(file) if file >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether no cgroup of that id exists any more. A cgroup that cannot be opened counts as
/// existing.
fn is_gone(mount: &File, id: u64) -> bool {
    let error = open_cgroup(mount, id).err();
    let number = error.and_then(|error| error.raw_os_error());
    matches!(number, Some(libc::ESTALE | libc::ENOENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots that a search finds, each of which is taken.
    fn found(nr_used: u32, is_used: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let mut search = Search::new();
        std::iter::from_fn(move || {
            let slot = search.next(nr_used, &is_used)?;
            search.take(slot);
            Some(slot)
        })
    }

    #[test]
    fn the_lowest_free_slots_are_taken() {
        let first = |nr_used, is_used: fn(u32) -> bool| {
            found(nr_used, is_used).take(3).collect::<Vec<u32>>()
        };
        assert_eq!(first(1, |_| true), [1, 2, 3]);
        assert_eq!(first(4, |_| true), [4, 5, 6]);
        assert_eq!(first(4, |slot| slot != 2), [2, 4, 5]);
        // Before any count.
        assert_eq!(first(0, |_| true), [FIRST, FIRST + 1, FIRST + 2]);
    }

    #[test]
    fn no_more_slots_are_found_than_there_are() {
        let all = |nr_used, is_used: fn(u32) -> bool| found(nr_used, is_used).collect::<Vec<u32>>();
        assert!(all(GROUPS_MAX, |_| true).is_empty());
        assert_eq!(all(GROUPS_MAX, |slot| slot != 9), [9]);
        assert_eq!(all(GROUPS_MAX - 1, |_| true), [GROUPS_MAX - 1]);
        assert_eq!(all(0, |_| true).len(), NR_SLOTS as usize);
    }

    #[test]
    fn when_all_are_in_use_the_search_is_not_repeated_for_each_group() {
        let looks = std::cell::Cell::new(0);
        let mut search = Search::new();
        for _ in 0..10_000 {
            let is_used = |_| {
                looks.set(looks.get() + 1);
                true
            };
            assert_eq!(search.next(GROUPS_MAX, is_used), None);
        }
        assert_eq!(looks.get(), NR_SLOTS);
    }
}
