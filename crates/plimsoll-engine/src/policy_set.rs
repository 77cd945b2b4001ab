//! What the user wants: groups, what belongs to each, and their knobs.
//!
//! Declarative and immutable. Command line, configuration file and every
//! other reader only produce it; only the planner reads it.

use std::path::PathBuf;

use crate::error::{EngineError, Result};
use crate::host::Mode;
use crate::knobs::Knobs;

/// The longest name of a group.
const NAME_LENGTH_MAX: usize = 64;

/// Files that the kernel puts into every cgroup …
const KERNEL_FILES: [&str; 3] = ["notify_on_release", "release_agent", "tasks"];
/// … and what the others begin with, before a `.`.
const KERNEL_FILE_STEMS: [&str; 12] = [
    "cgroup", "cpu", "cpuacct", "cpuset", "dmem", "hugetlb", "io", "irq", "memory", "misc", "pids",
    "rdma",
];

/// What belongs to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// A command that is about to be started, and all its descendants.
    Command,
    /// A cgroup that somebody else made, below the mount point.
    Cgroup(PathBuf),
    /// A process that runs already, and its descendants from now on.
    Process(i32),
    /// Processes that are moved in one by one, and their descendants.
    Processes,
}

/// One group and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPolicy {
    /// Its name: unique, and good as a folder's.
    pub name: String,
    /// What belongs to it.
    pub selector: Selector,
    /// What is asked.
    pub knobs: Knobs,
    /// The mode of the BPF scheduler that enforces what it can of this group;
    /// `None`: stock knobs alone.
    pub scheduler: Option<Mode>,
}

/// Everything that is wanted of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySet {
    groups: Vec<GroupPolicy>,
}

impl PolicySet {
    /// Checks groups and takes them.
    ///
    /// # Errors
    /// Names the first knob or name that cannot be used, or the second group
    /// of one name or for one target.
    pub fn new(groups: Vec<GroupPolicy>) -> Result<Self> {
        for (index, group) in groups.iter().enumerate() {
            check_name(&group.name)?;
            group.knobs.check()?;
            let same = |other: &&GroupPolicy| {
                other.name == group.name
                    || (other.selector == group.selector
                        && !matches!(group.selector, Selector::Command | Selector::Processes))
            };
            if groups[..index].iter().any(|other| same(&other)) {
                return Err(EngineError::NameTaken {
                    name: group.name.clone(),
                });
            }
        }
        Ok(Self { groups })
    }

    /// Its groups.
    pub fn groups(&self) -> &[GroupPolicy] {
        &self.groups
    }
}

/// Whether `name` can name a group.
///
/// # Errors
/// Says what is allowed.
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

/// Whether a folder of that name may be in the way of one of the kernel's files,
/// none of which has a `-` in its name.
fn is_kernels(name: &str) -> bool {
    let stem = name.split_once('.').map(|(stem, _)| stem);
    let has_stem = stem.is_some_and(|stem| KERNEL_FILE_STEMS.contains(&stem));
    KERNEL_FILES.contains(&name) || (has_stem && !name.contains('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, selector: Selector) -> GroupPolicy {
        GroupPolicy {
            name: name.into(),
            selector,
            knobs: Knobs::default(),
            scheduler: None,
        }
    }

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

    #[test]
    fn two_groups_cannot_claim_the_same() {
        let target = Selector::Cgroup("web".into());
        let twice = vec![group("a", target.clone()), group("b", target)];
        assert!(PolicySet::new(twice).is_err());
        let same_name = vec![
            group("a", Selector::Command),
            group("a", Selector::Process(1)),
        ];
        assert!(PolicySet::new(same_name).is_err());
        let apart = vec![group("a", Selector::Command), group("b", Selector::Command)];
        assert!(PolicySet::new(apart).is_ok());
    }
}
