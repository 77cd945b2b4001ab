//! External changes of the files of a cgroup.

use std::path::Path;

use plimsoll_cgroupfs::CpuGroup;

use super::change::Change;
use crate::error::{EngineError, Result};

/// Lists the differences between a cgroup's files and the wanted values, a line each. `change`: the
/// writes that would set these.
///
/// # Errors
/// When the files cannot be read, and the cgroup is there.
pub(super) fn external_changes(group: &CpuGroup, change: Result<Change>) -> Result<Vec<String>> {
    match change {
        Ok(change) => {
            let differences = change.differences().into_iter();
            Ok(differences
                .map(|(path, now)| changed(group, path, now))
                .collect())
        }
        // An idle cgroup has no weight: somebody else has marked it.
        Err(EngineError::NotEnforceable { .. }) => {
            Ok(vec![changed(group, &group.cpu_file("cpu.idle"), "1")])
        }
        Err(error) if error.is_gone() && group.exists() => Ok(vec![lost_files(group)]),
        // A cgroup that is gone has no files to differ.
        Err(error) if error.is_gone() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Message for an external change of a file.
fn changed(group: &CpuGroup, path: &Path, now: &str) -> String {
    let name = path.file_name().unwrap_or_default();
    let group = group.path().display();
    format!("/{group}: {} was changed to `{now}`", name.display())
}

/// Message for a cgroup that has lost the files of the cpu controller.
fn lost_files(group: &CpuGroup) -> String {
    let switch = group.parent().map(|parent| parent.subtree_control());
    let switch = switch.map_or_else(String::new, |switch| format!(" in {}", switch.display()));
    format!(
        "/{}: the cpu controller was switched off{switch}, and with it what was set here",
        group.path().display()
    )
}
