//! A setting of the kernel, for the whole machine, with which batch work delays normal work less:
//! preemption is full where it was lazy. docs/stock-kernels.md has its effect and its cost.

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{read_text, write_text};

use crate::error::Result;
use crate::host_settings::HostSettings;
use crate::journal::Entry;
use crate::runtime::RuntimeFolder;
use crate::undo::{UndoReport, chosen};

/// File with the modes of preemption, the present one in brackets (`kernel/sched/debug.c`).
const FILE: &str = "/sys/kernel/debug/sched/preempt";
/// Mode in which a task that wakes interrupts a task in user space at the next tick, or when that
/// task enters the kernel. Other modes interrupt it at once.
const LAZY: &str = "lazy";
const FULL: &str = "full";

/// Mode of preemption of the kernel, while it is ours.
#[derive(Debug)]
pub struct HostTuning {
    file: PathBuf,
    runtime: RuntimeFolder,
    settings: HostSettings,
}

impl HostTuning {
    /// Prepares the setting, and changes nothing yet. `runtime` is for the journal.
    pub fn new(runtime: RuntimeFolder) -> Self {
        Self::of(FILE.into(), runtime)
    }

    fn of(file: PathBuf, runtime: RuntimeFolder) -> Self {
        Self {
            file,
            runtime,
            settings: HostSettings::new(".host-tuning", "the machine's preemption"),
        }
    }

    /// Makes preemption full if it is lazy. Returns whether it was.
    ///
    /// # Errors
    /// When the kernel refuses: then nothing has changed.
    pub fn set(&mut self) -> Result<bool> {
        let is_lazy = chosen(&read_text(&self.file)?) == Some(LAZY);
        if is_lazy {
            let entry = Entry::Choose {
                path: self.file.clone(),
                old: LAZY.into(),
                new: FULL.into(),
            };
            let write = || write_text(&self.file, FULL);
            self.settings.change(&[entry], &self.runtime, write)?;
        }
        Ok(is_lazy)
    }

    /// Puts the mode back, unless somebody else has changed it.
    pub fn put_back(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        if let Err(error) = self.settings.put_back(&mut report) {
            report.problems.push(error.to_string());
        }
        report
    }
}

/// Returns whether this kernel preempts lazily. `None`: it has one mode, or does not tell this
/// process.
pub(crate) fn is_lazy() -> Option<bool> {
    let modes = read_text(Path::new(FILE)).ok()?;
    Some(chosen(&modes)? == LAZY)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::undo;

    struct Rig {
        folder: tempfile::TempDir,
        runtime: RuntimeFolder,
        tuning: HostTuning,
    }

    impl Rig {
        fn new(modes: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let runtime = RuntimeFolder::at(folder.path().join("run"));
            runtime.create().unwrap();
            let file = folder.path().join("preempt");
            let tuning = HostTuning::of(file, runtime.clone());
            let rig = Self {
                folder,
                runtime,
                tuning,
            };
            rig.write(modes);
            rig
        }

        fn write(&self, modes: &str) {
            fs::write(self.folder.path().join("preempt"), modes).unwrap();
        }

        fn now(&self) -> String {
            fs::read_to_string(self.folder.path().join("preempt")).unwrap()
        }
    }

    #[test]
    fn another_mode_than_the_lazy_one_stays() {
        for modes in ["none (voluntary) full lazy\n", "(full) lazy\n", "\n"] {
            let mut rig = Rig::new(modes);
            assert!(!rig.tuning.set().unwrap());
            assert_eq!(rig.tuning.put_back(), UndoReport::default());
            assert_eq!(rig.now(), modes);
        }
    }

    #[test]
    fn lazy_preemption_is_put_back_also_after_a_kill() {
        for is_killed in [false, true] {
            let mut rig = Rig::new("full (lazy)\n");
            assert!(rig.tuning.set().unwrap());
            assert!(rig.now().starts_with("full"));
            // Order in which the kernel shows it.
            rig.write("(full) lazy\n");
            if is_killed {
                rig.tuning.settings.forget();
                undo::recover(&rig.runtime).unwrap();
            } else {
                assert_eq!(rig.tuning.put_back().problems, [""; 0]);
            }
            assert!(rig.now().starts_with("lazy"));
        }
    }

    #[test]
    fn what_somebody_else_has_chosen_since_is_left_alone() {
        let mut rig = Rig::new("none full (lazy)\n");
        rig.tuning.set().unwrap();
        rig.write("(none) full lazy\n");
        let problems = rig.tuning.put_back().problems;
        assert!(problems[0].contains("left as it is"), "{problems:?}");
        assert_eq!(rig.now(), "(none) full lazy\n");
    }

    #[test]
    fn what_cannot_be_put_back_now_is_put_back_by_the_next_attempt() {
        let mut rig = Rig::new("full (lazy)\n");
        rig.tuning.set().unwrap();
        fs::remove_file(rig.folder.path().join("preempt")).unwrap();
        assert_eq!(rig.tuning.put_back().problems.len(), 1);
        rig.write("(full) lazy\n");
        assert!(!rig.tuning.set().unwrap(), "it is full already");
        undo::recover(&rig.runtime).unwrap();
        assert!(rig.now().starts_with("lazy"));
        rig.write("full (lazy)\n");
        assert!(rig.tuning.set().unwrap(), "its journal is gone");
    }
}
