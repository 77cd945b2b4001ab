//! The policy of one group: its processes and its knobs.
//!
//! Command line, configuration file and every other reader produce it; the plan and the enforcer
//! read it.

use std::path::PathBuf;

use crate::error::{EngineError, Result};
use crate::knobs::Knobs;

/// The longest name of a group.
const NAME_LENGTH_MAX: usize = 64;

/// Files without a prefix that the kernel puts into every cgroup.
const KERNEL_FILES: [&str; 3] = ["notify_on_release", "release_agent", "tasks"];
/// Prefixes, before a `.`, of all other kernel files in a cgroup.
const KERNEL_FILE_STEMS: [&str; 12] = [
    "cgroup", "cpu", "cpuacct", "cpuset", "dmem", "hugetlb", "io", "irq", "memory", "misc", "pids",
    "rdma",
];

/// The processes of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// A cgroup that somebody else made, below the mount point.
    Cgroup(PathBuf),
    /// A process that runs already, and its descendants from now on.
    Process(i32),
}

/// One group and its knobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPolicy {
    /// Its name: unique, and good as a folder's.
    pub name: String,
    /// Its processes.
    pub selector: Selector,
    /// Its knobs.
    pub knobs: Knobs,
    /// The BPF scheduler enforces its knobs; else stock knobs do.
    pub is_scheduled: bool,
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
        && !is_kernels(name);
    if good {
        Ok(())
    } else {
        Err(EngineError::BadName { name: name.into() })
    }
}

/// Returns true if a folder of that name may collide with a kernel file. No kernel
/// file has a `-` in its name.
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
            "7",
            "cpu",
            "cpu.test-17",
            "tasks2",
        ] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "-x",
            ".hidden",
            "tasks",
            "cgroup.procs",
            "cpu.max",
            "cpuacct.usage_all",
            "a b",
            "a\n",
            &"x".repeat(65),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
