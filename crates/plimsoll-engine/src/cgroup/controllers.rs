//! Switching the cpu controller on, which cgroup v2 does from the parent.

use plimsoll_cgroupfs::{CgroupError, CpuGroup};

use crate::error::{EngineError, Result};
use crate::runtime::RuntimeFolder;

/// v2: gives a cgroup the cpu controller if it has none, from the nearest ancestor that has.
///
/// # Errors
/// When the cgroup is gone, or the kernel refuses.
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

/// v2 refuses controllers for the children of a cgroup that has processes of its own; the
/// kernel's message alone does not name the remedy.
pub(super) fn explain_busy(error: CgroupError, base: &CpuGroup) -> EngineError {
    if error.os_error() != Some(libc::EBUSY) {
        return error.into();
    }
    CgroupError::NoPermission {
        path: base.cpu_file(""),
        help: "cgroup v2 gives no knobs to children of a cgroup that has processes itself; \
               move these into a child of their own first"
            .into(),
    }
    .into()
}
