//! Names by which Plimsoll's own cgroups are known, below the base.
//!
//! ```text
//! BASE/plimsoll/NAME         normal groups
//! BASE/plimsoll-batch/NAME   batch groups
//! BASE/plimsoll-soft-NAME    soft-capped groups
//! ```

use std::ffi::OsStr;
use std::path::Path;

use plimsoll_cgroupfs::Hierarchy;

/// Parent of normal groups.
pub(crate) const PARENT_NORMAL: &str = "plimsoll";
/// Parent of batch groups; it carries the idle mark.
pub(crate) const PARENT_BATCH: &str = "plimsoll-batch";
/// Beginning of the names of soft-capped groups.
pub(crate) const PREFIX_SOFT: &str = "plimsoll-soft-";
/// Name of the cgroup, in any other, of processes that no cgroup above their old one takes.
pub const LEFT: &str = "plimsoll-left";

/// Returns whether a cgroup, by its path below the mount point, is an own group or below one. Own
/// groups are created below the base; cgroups with such names elsewhere are foreign.
pub fn is_own(hierarchy: &Hierarchy, path: &Path) -> bool {
    let first = below_base(hierarchy, path).and_then(|path| path.components().next());
    first.is_some_and(|first| is_own_name(first.as_os_str()))
}

/// Returns the name of the group that a cgroup belongs to; `None`: the cgroup is not one of a
/// group.
pub fn group_of<'a>(hierarchy: &Hierarchy, path: &'a Path) -> Option<&'a str> {
    let mut parts = below_base(hierarchy, path)?
        .components()
        .map(|part| part.as_os_str());
    let first = parts.next()?;
    if first == PARENT_NORMAL || first == PARENT_BATCH {
        return parts.next()?.to_str().map(without_generation);
    }
    let soft = first.to_str()?.strip_prefix(PREFIX_SOFT);
    soft.map(without_generation)
}

fn below_base<'a>(hierarchy: &Hierarchy, path: &'a Path) -> Option<&'a Path> {
    let path = path.strip_prefix("/").unwrap_or(path);
    path.strip_prefix(hierarchy.base()).ok()
}

fn without_generation(folder: &str) -> &str {
    folder.split('+').next().unwrap_or(folder)
}

/// Returns whether a cgroup's folder may be an own group or below one, judged by the names in its
/// path alone.
pub(crate) fn may_be_own(folder: &Path) -> bool {
    folder
        .components()
        .any(|component| is_own_name(component.as_os_str()))
}

fn is_own_name(name: &OsStr) -> bool {
    name == PARENT_NORMAL || name == PARENT_BATCH || is_soft_name(name)
}

fn is_soft_name(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(PREFIX_SOFT.as_bytes())
}

#[cfg(test)]
mod tests {
    use plimsoll_cgroupfs::Version;

    use super::*;

    #[test]
    fn own_groups_are_known_by_their_first_name_below_the_base() {
        let hierarchy = Hierarchy::at_folder(Path::new("/nowhere"), Version::V2);
        for (path, group) in [
            ("/plimsoll/a", Some("a")),
            ("plimsoll-batch/a+3/quota", Some("a")),
            ("/plimsoll-soft-a/cap", Some("a")),
            ("/plimsoll", None),
        ] {
            assert!(is_own(&hierarchy, Path::new(path)), "{path}");
            assert_eq!(group_of(&hierarchy, Path::new(path)), group, "{path}");
        }
        for path in ["/", "", "/plimsoll-test-1/plimsoll/a", "/user/plimsoll/a"] {
            assert!(!is_own(&hierarchy, Path::new(path)), "{path}");
            assert_eq!(group_of(&hierarchy, Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_folder_may_be_own_wherever_its_names_occur() {
        assert!(may_be_own(Path::new("/mnt/base/plimsoll-batch/a")));
        assert!(!may_be_own(Path::new("/mnt/base/plimsoll-test-1")));
    }
}
