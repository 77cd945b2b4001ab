//! Requirements of the scheduler on this host.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use nix::sys::statfs::{FsType, statfs};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;
use serde::Serialize;

use crate::exit::DUMP;
use crate::kernel::{is_ours, missing_ops};
use crate::objects::BPFFS;
use crate::pins::Pins;
use crate::{SchedExtError, SchedExtKernel, SchedExtState};

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

impl SchedExtHost {
    /// Whether Plimsoll's scheduler is loaded with groups of this user. Costs a few small reads.
    pub fn serves(runtime: &RuntimeFolder) -> bool {
        let loaded = SchedExtKernel::host().scheduler().ok().flatten();
        let pins = Pins::of(runtime);
        loaded.is_some_and(|name| is_ours(&name)) && pins.are_own() && !pins.are_left()
    }

    /// Whether an owner that is gone has left the scheduler, which goes on until it is unloaded.
    pub fn is_left(runtime: &RuntimeFolder) -> bool {
        Pins::of(runtime).are_left()
    }

    /// Whether an owner with this runtime folder, be it the caller, has left the scheduler.
    pub fn is_of(runtime: &RuntimeFolder) -> bool {
        Pins::of(runtime).are_own()
    }

    /// Removes the scheduler that an earlier owner has left. When this returns, another can be
    /// loaded. The caller owns the tree.
    pub fn unload(runtime: &RuntimeFolder) -> UndoReport {
        Pins::of(runtime).remove()
    }

    /// Removes the scheduler of an owner that is gone from the kernel, and the kernel's dump. The
    /// caller owns the tree.
    pub fn clean_up(runtime: &RuntimeFolder) -> UndoReport {
        let mut report = match Self::is_left(runtime) {
            true => Self::unload(runtime),
            false => UndoReport::default(),
        };
        let dump = runtime.path().join(DUMP);
        match fs::remove_file(&dump) {
            Ok(()) => report.undone.push(DUMP.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            Err(error) => report
                .problems
                .push(format!("cannot remove {}: {error}", dump.display())),
        }
        report
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
        found.is_left_behind = is_ours && Self::is_left(runtime);
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
    fn the_dump_is_removed_once_the_owner_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        assert_eq!(SchedExtHost::clean_up(&runtime), UndoReport::default());
        fs::write(folder.path().join(DUMP), "").unwrap();
        assert_eq!(SchedExtHost::clean_up(&runtime).undone, [DUMP]);
        assert_eq!(SchedExtHost::clean_up(&runtime), UndoReport::default());
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
