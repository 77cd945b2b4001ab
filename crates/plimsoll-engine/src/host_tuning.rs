//! A setting of the kernel, for the whole machine, with which batch work delays normal work less:
//! preemption is full where it was lazy. docs/stock-kernels.md has its effect and its cost.

use std::path::Path;

use plimsoll_cgroupfs::read_text;

use crate::error::Result;
use crate::host_settings;
use crate::journal::KeptJournal;
use crate::undo::{UndoReport, chosen};

/// File with the modes of preemption, the present one in brackets (`kernel/sched/debug.c`).
const FILE: &str = "/sys/kernel/debug/sched/preempt";
/// Mode in which a task that wakes interrupts a task in user space at the next tick, or when that
/// task enters the kernel. Other modes interrupt it at once.
const LAZY: &str = "lazy";
const FULL: &str = "full";

/// Makes preemption full if it is lazy. Returns whether it was.
///
/// # Errors
/// When the kernel refuses: then nothing has changed.
pub(crate) fn set(journal: &mut KeptJournal) -> Result<bool> {
    set_in(Path::new(FILE), journal)
}

fn set_in(file: &Path, journal: &mut KeptJournal) -> Result<bool> {
    let is_lazy = chosen(&read_text(file)?) == Some(LAZY);
    if is_lazy {
        host_settings::change(file, LAZY, FULL, journal)?;
    }
    Ok(is_lazy)
}

/// Puts the mode back, unless somebody else has changed it.
pub(crate) fn put_back(journal: &mut KeptJournal) -> UndoReport {
    let mut report = UndoReport::default();
    host_settings::put_back(Path::new(FILE), journal, &mut report);
    report
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
    use crate::host_settings::rig::Setting;

    fn set(rig: &mut Setting) -> bool {
        set_in(&rig.file, &mut rig.journal).unwrap()
    }

    #[test]
    fn another_mode_than_the_lazy_one_stays() {
        for modes in ["none (voluntary) full lazy\n", "(full) lazy\n", "\n"] {
            let mut rig = Setting::new(modes);
            assert!(!set(&mut rig));
            assert_eq!(rig.put_back(), UndoReport::default());
            assert_eq!(rig.now(), modes);
        }
    }

    #[test]
    fn what_somebody_else_has_chosen_since_is_left_alone() {
        let mut rig = Setting::new("none full (lazy)\n");
        set(&mut rig);
        rig.write("(none) full lazy\n");
        let problems = rig.put_back().problems;
        assert!(problems[0].contains("left as it is"), "{problems:?}");
        assert_eq!(rig.now(), "(none) full lazy\n");
    }

    #[test]
    fn what_cannot_be_put_back_now_is_put_back_by_the_next_attempt() {
        let mut rig = Setting::new("full (lazy)\n");
        set(&mut rig);
        fs::remove_file(&rig.file).unwrap();
        assert_eq!(rig.put_back().problems.len(), 1);
        rig.write("(full) lazy\n");
        assert!(!set(&mut rig), "it is full already");
        rig.recover();
        assert!(rig.now().starts_with("lazy"));
    }
}
