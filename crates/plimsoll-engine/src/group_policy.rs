//! Policy of one group: its processes and its knobs.
//!
//! Command line, configuration file and every other reader produce it; the plan and the enforcer
//! read it.

use std::path::PathBuf;

use plimsoll_cgroupfs::name;

use crate::error::{EngineError, Result};
use crate::knobs::Knobs;
use crate::tasks::TaskId;

const NAME_LENGTH_MAX: usize = 64;

/// Files without a prefix that the kernel puts into every cgroup.
const KERNEL_FILES: [&str; 3] = ["notify_on_release", "release_agent", "tasks"];
/// Prefixes, before a `.`, of all other kernel files in a cgroup.
const KERNEL_FILE_STEMS: [&str; 12] = [
    "cgroup", "cpu", "cpuacct", "cpuset", "dmem", "hugetlb", "io", "irq", "memory", "misc", "pids",
    "rdma",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPolicy {
    /// Unique name. That of an own group is fit for a folder; that of a foreign cgroup is its path,
    /// as users see it.
    pub name: String,
    /// First process of an own group, which has its descendants from now on, too; `None`: the group
    /// is a cgroup that somebody else made.
    pub first: Option<TaskId>,
    /// The command, for people; empty for a foreign cgroup.
    pub subject: String,
    pub knobs: Knobs,
    /// Whether the BPF scheduler enforces the knobs; else stock knobs do.
    pub is_scheduled: bool,
}

impl GroupPolicy {
    pub fn is_foreign(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the path of a foreign cgroup below the mount point.
    pub fn path(&self) -> PathBuf {
        name::path_of(self.name.trim_start_matches('/'))
    }
}

/// Checks that `name` is a valid group name.
///
/// # Errors
/// Names the allowed characters and length.
pub fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let good = name.len() <= NAME_LENGTH_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(allowed)
        && !name.chars().all(|c| c.is_ascii_digit())
        && !is_kernels(name);
    if good {
        Ok(())
    } else {
        Err(EngineError::BadName { name: name.into() })
    }
}

/// Returns whether a folder of that name may collide with a kernel file. No kernel file has a `-`
/// in its name.
fn is_kernels(name: &str) -> bool {
    let stem = name.split_once('.').map(|(stem, _)| stem);
    let has_stem = stem.is_some_and(|stem| KERNEL_FILE_STEMS.contains(&stem));
    KERNEL_FILES.contains(&name) || (has_stem && !name.contains('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_their_folder() {
        for name in [
            "a",
            "encode-1",
            "x_y.z",
            "7z",
            "cpu",
            "cpu.test-17",
            "tasks2",
        ] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            ".",
            "a/b",
            "-x",
            "7",
            "tasks",
            "cgroup.procs",
            "cpu.max",
            "a b",
            // As a group is called whose cgroups are made anew.
            "a+1",
            "a\n",
            &"x".repeat(65),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
