//! Runtime that a CPU takes from a group's quota at a time: one setting of the stock kernel, for
//! the whole machine.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{Hierarchy, read_text, write_text};

use crate::error::{EngineError, Result};
use crate::host_settings::HostSettings;
use crate::journal::Entry;
use crate::knobs::BandwidthSlice;
use crate::knobs::units::NSEC_PER_USEC;
use crate::runtime::RuntimeFolder;
use crate::undo::UndoReport;

/// File of the setting (`kernel/sched/fair.c`); in microseconds, 5000 unless somebody has set it.
const FILE: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";

#[derive(Debug)]
pub(crate) struct MachineSlice {
    file: PathBuf,
    settings: HostSettings,
}

impl Default for MachineSlice {
    fn default() -> Self {
        Self {
            file: FILE.into(),
            settings: HostSettings::new(".bandwidth-slice", "the machine's bandwidth slice"),
        }
    }
}

fn not_here(slice: BandwidthSlice, reason: String) -> EngineError {
    EngineError::NotEnforceable {
        knob: "bandwidth-slice",
        value: slice.to_string(),
        reason,
    }
}

impl MachineSlice {
    /// Sets the slice; `None` puts the previous one back.
    ///
    /// # Errors
    /// When this process has only a part of the machine, the kernel has no such setting, or the
    /// setting may not be written: then nothing has changed.
    pub fn set(
        &mut self,
        slice: Option<BandwidthSlice>,
        hierarchy: &Hierarchy,
        runtime: &RuntimeFolder,
    ) -> Result<()> {
        let Some(slice) = slice else {
            let mut report = UndoReport::default();
            return self.put_back(&mut report);
        };
        if !hierarchy.is_top() {
            let reason = "it holds for the whole machine, and this process has only a part of it";
            return Err(not_here(slice, reason.into()));
        }
        self.write(slice, runtime)
    }

    fn write(&mut self, slice: BandwidthSlice, runtime: &RuntimeFolder) -> Result<()> {
        let file = self.file.display();
        let old = read_text(&self.file).map_err(|error| match error.is_gone() {
            true => not_here(slice, format!("the kernel has no {file}")),
            false => error.into(),
        })?;
        let new = (slice.slice_ns / NSEC_PER_USEC).to_string();
        if old == new {
            return Ok(());
        }
        let change = Entry::Write {
            path: self.file.clone(),
            old,
            new: new.clone(),
        };
        let write = || write_text(&self.file, &new);
        let changed = self.settings.change(&[change], runtime, write);
        changed.map_err(|error| refused(slice, &self.file, error))
    }

    /// Puts the previous slice back, unless somebody else has set another since.
    pub fn put_back(&mut self, report: &mut UndoReport) -> Result<()> {
        self.settings.put_back(report)
    }
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

    struct Rig {
        folder: tempfile::TempDir,
        runtime: RuntimeFolder,
        slice: MachineSlice,
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let runtime = RuntimeFolder::at(folder.path().join("run"));
            runtime.create().unwrap();
            let file = folder.path().join("slice_us");
            fs::write(&file, "5000\n").unwrap();
            let slice = MachineSlice {
                file,
                ..MachineSlice::default()
            };
            Self {
                folder,
                runtime,
                slice,
            }
        }

        fn write(&mut self, text: &str) -> Result<()> {
            self.slice.write(text.parse().unwrap(), &self.runtime)
        }

        fn now(&self) -> String {
            fs::read_to_string(&self.slice.file).unwrap().trim().into()
        }

        fn nr_journals(&self) -> usize {
            let files = fs::read_dir(self.folder.path().join("run")).unwrap();
            let is_ours = |name: &std::ffi::OsString| name.to_string_lossy().contains("slice");
            files.flatten().filter(|f| is_ours(&f.file_name())).count()
        }
    }

    #[test]
    fn what_was_there_at_first_is_put_back_after_several_changes() {
        let mut rig = Rig::new();
        rig.write("5ms").unwrap();
        assert_eq!(rig.nr_journals(), 0, "it is so already");
        rig.write("2ms").unwrap();
        rig.write("3.5ms").unwrap();
        assert_eq!((rig.now().as_str(), rig.nr_journals()), ("3500", 1));
        let mut report = UndoReport::default();
        rig.slice.put_back(&mut report).unwrap();
        assert_eq!((rig.now().as_str(), rig.nr_journals()), ("5000", 0));
        assert_eq!(report.problems, [""; 0]);
    }

    #[test]
    fn what_somebody_else_sets_is_left_alone() {
        let mut rig = Rig::new();
        rig.write("2ms").unwrap();
        fs::write(&rig.slice.file, "7000\n").unwrap();
        let mut report = UndoReport::default();
        rig.slice.put_back(&mut report).unwrap();
        assert_eq!(rig.now(), "7000");
        assert_eq!(report.problems.len(), 1, "{report:?}");
    }

    #[test]
    fn after_a_kill_the_next_start_puts_it_back() {
        let mut rig = Rig::new();
        rig.write("2ms").unwrap();
        rig.slice.settings.forget();
        crate::undo::recover(&rig.runtime).unwrap();
        assert_eq!((rig.now().as_str(), rig.nr_journals()), ("5000", 0));
    }

    #[test]
    fn a_kernel_without_it_and_a_read_only_one_are_told_apart() {
        let mut rig = Rig::new();
        fs::remove_file(&rig.slice.file).unwrap();
        let error = rig.write("2ms").unwrap_err().to_string();
        assert!(error.contains("the kernel has no"), "{error}");
        let read_only = EngineError::from(plimsoll_cgroupfs::CgroupError::file(
            "write",
            Path::new(FILE),
            std::io::Error::from_raw_os_error(libc::EROFS),
        ));
        let error = refused("2ms".parse().unwrap(), Path::new(FILE), read_only).to_string();
        assert!(error.contains("bandwidth-slice"), "{error}");
        assert!(error.contains("not in a container"), "{error}");
        assert_eq!(rig.nr_journals(), 0);
    }
}
