//! Runtime that a CPU takes from a group's quota at a time: one setting of the stock kernel, for
//! the whole machine.

use std::io::ErrorKind;
use std::path::Path;

use plimsoll_cgroupfs::{Hierarchy, read_text};

use crate::error::{EngineError, Result};
use crate::host_settings;
use crate::journal::KeptJournal;
use crate::knobs::BandwidthSlice;
use crate::knobs::units::NSEC_PER_USEC;
use crate::undo::UndoReport;

/// File of the setting (`kernel/sched/fair.c`); in microseconds, 5000 unless somebody has set it.
const FILE: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";

fn not_here(slice: BandwidthSlice, reason: String) -> EngineError {
    EngineError::NotEnforceable {
        knob: "bandwidth-slice",
        value: slice.to_string(),
        reason,
    }
}

/// Sets the slice; `None` puts the previous one back.
///
/// # Errors
/// When this process has only a part of the machine, the kernel has no such setting, or the setting
/// may not be written: then nothing has changed.
pub(crate) fn set(
    slice: Option<BandwidthSlice>,
    hierarchy: &Hierarchy,
    journal: &mut KeptJournal,
) -> Result<()> {
    let file = Path::new(FILE);
    match slice {
        Some(slice) if !hierarchy.is_top() => {
            let reason = "it holds for the whole machine, and this process has only a part of it";
            Err(not_here(slice, reason.into()))
        }
        Some(slice) => write(slice, file, journal),
        None => {
            host_settings::put_back(file, journal, &mut UndoReport::default());
            Ok(())
        }
    }
}

fn write(slice: BandwidthSlice, file: &Path, journal: &mut KeptJournal) -> Result<()> {
    let old = read_text(file).map_err(|error| match error.is_gone() {
        true => not_here(slice, format!("the kernel has no {}", file.display())),
        false => error.into(),
    })?;
    let new = (slice.slice_ns / NSEC_PER_USEC).to_string();
    if old == new {
        return Ok(());
    }
    let changed = host_settings::change(file, &old, &new, journal);
    changed.map_err(|error| refused(slice, file, error))
}

/// Explains a refused write: in a container, root may not write to /proc/sys.
fn refused(slice: BandwidthSlice, file: &Path, error: EngineError) -> EngineError {
    let source = error.os_error().map(std::io::Error::from_raw_os_error);
    match source {
        Some(source)
            if matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            let file = file.display();
            let reason = format!(
                "{file} cannot be written ({source}); root can, on the host and not in a container"
            );
            not_here(slice, reason)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host_settings::rig::Setting;

    fn set(rig: &mut Setting, text: &str) -> Result<()> {
        write(text.parse().unwrap(), &rig.file, &mut rig.journal)
    }

    #[test]
    fn a_kernel_without_it_and_a_read_only_one_are_told_apart() {
        let mut rig = Setting::new("5000");
        fs::remove_file(&rig.file).unwrap();
        let error = set(&mut rig, "2ms").unwrap_err().to_string();
        assert!(error.contains("the kernel has no"), "{error}");
        let read_only = EngineError::from(plimsoll_cgroupfs::CgroupError::file(
            "write",
            Path::new(FILE),
            std::io::Error::from_raw_os_error(libc::EROFS),
        ));
        let error = refused("2ms".parse().unwrap(), Path::new(FILE), read_only).to_string();
        assert!(error.contains("bandwidth-slice"), "{error}");
        assert!(error.contains("not in a container"), "{error}");
        assert_eq!(rig.nr_recorded(), 0);
    }
}
