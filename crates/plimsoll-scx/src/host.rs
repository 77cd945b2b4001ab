//! Requirements of the scheduler on this host.

use std::fs;
use std::path::Path;

use nix::sys::statfs::{FsType, statfs};
use plimsoll_engine::journal::Journal;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;
use serde::Serialize;

use crate::kernel::{is_ours, missing_ops};
use crate::objects::BPFFS;
use crate::status::{SchedulerActivity, Status};
use crate::{SchedExtError, SchedExtKernel, SchedExtState, journal, status};

/// include/uapi/linux/magic.h
const BPF_FS_MAGIC: FsType = FsType(0xcafe_4a11);

/// Requirements of the scheduler on this host, and the scheduler that is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// The kernel has sched_ext and all that loading needs.
    pub is_supported: bool,
    /// State of sched_ext: `disabled`, `changing` or `enabled`.
    pub state: String,
    /// Name of the loaded scheduler.
    pub loaded: Option<String>,
    /// The loaded scheduler is Plimsoll's, with groups of this user.
    pub is_own: bool,
    /// The loaded scheduler is Plimsoll's, and its owner was killed: the next start or `plimsoll
    /// restore` removes it.
    pub is_left_behind: bool,
    /// Probed functions that the kernel lacks.
    pub missing_ops: Vec<&'static str>,
    /// This process may load BPF programs.
    pub is_root: bool,
    /// A BPF file system is mounted where it is expected.
    pub has_bpffs: bool,
    /// The obstacle, if any.
    pub problem: Option<String>,
}

pub struct SchedExtHost;

/// A scheduler that an earlier owner has left in the kernel. No other owner undoes its journal
/// while this lives.
pub struct LeftScheduler(Journal);

impl LeftScheduler {
    /// Removes the scheduler. When this returns, another can be loaded.
    pub fn unload(self) -> UndoReport {
        journal::undo_journal(self.0)
    }
}

impl SchedExtHost {
    /// Whether Plimsoll's scheduler is loaded with groups of this user. Costs three small reads.
    pub fn serves(runtime: &RuntimeFolder) -> bool {
        let loaded = SchedExtKernel::host().scheduler().ok().flatten();
        loaded.is_some_and(|name| is_ours(&name))
            && !journal::is_left_behind(runtime)
            && Status::published(runtime)
                .is_some_and(|it| it.activity == SchedulerActivity::Running)
    }

    /// The scheduler of an owner that is gone, which goes on until it is unloaded. The caller owns
    /// the tree. `None`: there is none.
    ///
    /// # Errors
    /// When its journal cannot be opened.
    pub fn take_left(runtime: &RuntimeFolder) -> Result<Option<LeftScheduler>, SchedExtError> {
        Ok(journal::left_behind(runtime)?.map(LeftScheduler))
    }

    /// Removes the scheduler of an owner that is gone from the kernel, and the files that the owner
    /// has published: the scheduler's state, and the kernel's dumps. The caller owns the tree.
    ///
    /// # Errors
    /// When its journal cannot be opened.
    pub fn clean_up(runtime: &RuntimeFolder) -> Result<UndoReport, SchedExtError> {
        let mut report =
            Self::take_left(runtime)?.map_or_else(UndoReport::default, LeftScheduler::unload);
        let left = [status::file(runtime), status::dump_file(runtime)];
        for path in left.into_iter().filter(|path| path.exists()) {
            let name = path.file_name().map(|name| name.to_string_lossy());
            match fs::remove_file(&path) {
                Ok(()) => report.undone.extend(name.map(Into::into)),
                Err(error) => report
                    .problems
                    .push(format!("cannot remove {}: {error}", path.display())),
            }
        }
        Ok(report)
    }

    /// Checks this host without changing it.
    pub fn readiness(runtime: &RuntimeFolder) -> Readiness {
        let mut found = Readiness {
            is_supported: false,
            state: "disabled".into(),
            loaded: None,
            is_own: false,
            is_left_behind: false,
            missing_ops: Vec::new(),
            is_root: nix::unistd::geteuid().is_root(),
            has_bpffs: statfs(Path::new(BPFFS))
                .is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC),
            problem: None,
        };
        if let Err(error) = found.ask(&SchedExtKernel::host()) {
            found.problem = Some(error.to_string());
        }
        found.is_own = Self::serves(runtime);
        let is_ours = found.loaded.as_deref().is_some_and(is_ours);
        found.is_left_behind = is_ours && journal::is_left_behind(runtime);
        if found.problem.is_none() {
            found.problem = found.missing();
        }
        found
    }
}

fn state_name(state: SchedExtState) -> &'static str {
    match state {
        SchedExtState::Disabled => "disabled",
        SchedExtState::Changing => "changing",
        SchedExtState::Enabled => "enabled",
    }
}

impl Readiness {
    /// Takes over what the kernel says of itself. Fails if the scheduler cannot be loaded at all.
    fn ask(&mut self, kernel: &SchedExtKernel) -> Result<(), SchedExtError> {
        self.state = state_name(kernel.state()?).into();
        self.loaded = kernel.scheduler()?;
        self.missing_ops = missing_ops(&kernel.types()?);
        self.is_supported = true;
        Ok(())
    }

    fn missing(&self) -> Option<String> {
        if !self.is_root {
            return Some("loading a BPF scheduler requires root".into());
        }
        if !self.has_bpffs {
            return Some(format!(
                "no BPF file system is mounted at {BPFFS}; mount it: mount -t bpf bpf {BPFFS}"
            ));
        }
        match &self.loaded {
            Some(_) if self.is_own || self.is_left_behind => None,
            Some(name) if is_ours(name) => {
                Some("the scheduler belongs to a plimsoll with another runtime folder".into())
            }
            Some(other) => Some(SchedExtError::OtherScheduler(other.clone()).to_string()),
            None => None,
        }
    }

    /// Fails unless the scheduler is loaded or could be.
    pub fn check(&self) -> Result<(), SchedExtError> {
        match &self.problem {
            Some(problem) => Err(SchedExtError::NotReady(problem.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Readiness {
        Readiness {
            is_supported: true,
            state: "disabled".into(),
            loaded: None,
            is_own: false,
            is_left_behind: false,
            missing_ops: Vec::new(),
            is_root: true,
            has_bpffs: true,
            problem: None,
        }
    }

    #[test]
    fn missing_requirements_are_named() {
        type Change = fn(&mut Readiness);
        assert_eq!(ready().missing(), None);
        let cases: [(Change, &str); 4] = [
            (|it| it.is_root = false, "root"),
            (|it| it.has_bpffs = false, "mount -t bpf"),
            (|it| it.loaded = Some("lavd".into()), "lavd"),
            (|it| it.loaded = Some("plimsoll".into()), "runtime folder"),
        ];
        for (change, word) in cases {
            let mut readiness = ready();
            change(&mut readiness);
            let missing = readiness.missing().unwrap();
            assert!(missing.contains(word), "{missing}");
        }
        let loaded = Readiness {
            loaded: Some("plimsoll".into()),
            is_own: true,
            ..ready()
        };
        assert_eq!(loaded.missing(), None);
        let left_behind = Readiness {
            is_left_behind: true,
            is_own: false,
            ..loaded
        };
        assert_eq!(left_behind.missing(), None);
    }
}
