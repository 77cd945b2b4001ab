//! Room for the cgroups of this machine in the scheduler's tables, which are sized when it is
//! loaded: for twice as many as there are.

use std::fs;
use std::path::Path;

use plimsoll_cgroupfs::Hierarchy;

use crate::bpf_intf::{
    plimsoll_limits_PLIMSOLL_GROUPS_MAX as GROUPS_MAX,
    plimsoll_limits_PLIMSOLL_LIMITS_MIN as LIMITS_MIN,
    plimsoll_limits_PLIMSOLL_RECORDS_MAX as RECORDS_MAX,
    plimsoll_limits_PLIMSOLL_RECORDS_MIN as RECORDS_MIN,
    plimsoll_limits_PLIMSOLL_SLOTS_MAX as SLOTS_MAX,
};

/// Sizes of the scheduler's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Number of cgroups that are told apart.
    pub records: u32,
    /// Number of groups and of quotas of cgroups.
    pub slots: u32,
}

impl Room {
    /// Returns the number of quotas of cgroups.
    pub fn limits(&self) -> u32 {
        self.slots - GROUPS_MAX
    }

    pub fn of_this_host(hierarchy: &Hierarchy) -> Self {
        Self::below(hierarchy.mount_point())
    }

    fn below(root: &Path) -> Self {
        let (mut cgroups, mut limited) = (0, 0);
        count(root, &mut cgroups, &mut limited);
        Self {
            records: cgroups.saturating_mul(2).clamp(RECORDS_MIN, RECORDS_MAX),
            slots: limited
                .saturating_mul(2)
                .clamp(LIMITS_MIN, SLOTS_MAX - GROUPS_MAX)
                + GROUPS_MAX,
        }
    }
}

/// Counts the cgroups below one, and those with a quota.
fn count(folder: &Path, cgroups: &mut u32, limited: &mut u32) {
    // A cgroup that is gone meanwhile has none.
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    for entry in entries.flatten().filter(is_folder) {
        *cgroups += 1;
        *limited += u32::from(has_quota(&entry.path()));
        count(&entry.path(), cgroups, limited);
    }
}

/// Whether a cgroup has a quota, of either version of cgroups.
fn has_quota(folder: &Path) -> bool {
    let is_set = |file: &str, none: &str| {
        fs::read_to_string(folder.join(file)).is_ok_and(|text| !text.starts_with(none))
    };
    is_set("cpu.max", "max") || is_set("cpu.cfs_quota_us", "-1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_twice_the_cgroups_and_quotas_that_exist() {
        let root = tempfile::tempdir().unwrap();
        let least = Room {
            records: RECORDS_MIN,
            slots: GROUPS_MAX + LIMITS_MIN,
        };
        assert_eq!(Room::below(root.path()), least);
        assert_eq!(Room::below(&root.path().join("gone")), least);
        for number in 0..600 {
            let folder = root.path().join(format!("a/{number}"));
            fs::create_dir_all(&folder).unwrap();
            let (file, text) = match number % 4 {
                0 => ("cpu.max", "max 100000\n"),
                1 => ("cpu.cfs_quota_us", "-1\n"),
                2 => ("cpu.max", "1000 100000\n"),
                _ => ("cpu.cfs_quota_us", "1000\n"),
            };
            fs::write(folder.join(file), text).unwrap();
        }
        let (mut cgroups, mut limited) = (0, 0);
        count(root.path(), &mut cgroups, &mut limited);
        assert_eq!((cgroups, limited), (601, 300));
        assert_eq!(Room::below(root.path()), least);
    }
}
