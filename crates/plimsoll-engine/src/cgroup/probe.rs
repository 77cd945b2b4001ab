//! Trial of the steps that every group needs, which leaves nothing behind.

use std::io;
use std::sync::Arc;

use plimsoll_cgroupfs::{CgroupError, CpuGroup, Hierarchy, os};

use super::place::check_enabling;
use crate::error::Result;
use crate::runtime::Ownership;

/// Tries the steps of `run`: the file by which an owner holds the tree, the place of this process
/// in it, and a new cgroup. The controller of v2 is not switched on, because that would change the
/// knobs of others; `check_enabling` tells whether the kernel would refuse it.
///
/// # Errors
/// The first error that `run` would meet, too.
pub fn try_group(hierarchy: &Arc<Hierarchy>) -> Result<()> {
    Ownership::open(hierarchy)?;
    let own = std::process::id();
    hierarchy.folders_of(own.cast_signed())?;
    let base = CpuGroup::at(hierarchy, hierarchy.base());
    check_enabling(&base)?;
    let probe = base.child(format!("plimsoll-probe-{own}"));
    let created = probe.create();
    for folder in probe.folders() {
        match os::remove_folder(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(CgroupError::file("remove", &folder, error).into());
            }
            _ => (),
        }
    }
    Ok(created?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plimsoll_cgroupfs::Version;

    use super::*;

    #[test]
    fn a_tree_without_its_files_is_refused_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let hierarchy = Arc::new(Hierarchy::at_folder(folder.path(), Version::V1));
        // Looks like a tmpfs over the hierarchy.
        let refused = try_group(&hierarchy).unwrap_err();
        assert_eq!(refused.os_error(), Some(libc::ENOENT));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
