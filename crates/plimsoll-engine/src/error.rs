//! Errors of the engine.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::CgroupError;
use thiserror::Error;

use crate::knobs::KnobError;

/// An error of the engine, one readable line each.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A knob's value, alone or together with others, cannot be used.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A kernel file, a cgroup or the controller could not be used.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// This host cannot enforce a knob.
    #[error("{knob}: cannot be `{value}` here: {reason}")]
    NotEnforceable {
        /// The knob's name.
        knob: &'static str,
        /// Its value.
        value: String,
        /// Reason, and an alternative that can.
        reason: String,
    },
    /// A group of that name is there already.
    #[error("group `{name}` exists already; choose another --name, or see `plimsoll show {name}`")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A cgroup is in one group at most.
    #[error("{target}: is in group `{name}` already; change that: plimsoll set {name}")]
    CgroupTaken {
        /// The cgroup.
        target: String,
        /// The group.
        name: String,
    },
    /// A name that cannot be a folder's.
    #[error(
        "name: `{name}` is not allowed; allowed: 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter or digit, and not the name of a file of the kernel's such as `tasks` or `cpu.max`"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The kernel keeps a real-time task out of a group.
    #[error(
        "{pid}: is a real-time task, and this kernel lets none into a cgroup without real-time \
         runtime of its own; start the command without, such as by `chrt -o 0`"
    )]
    RealTime {
        /// The process.
        pid: i32,
    },
    /// A process whose threads have limits of their own cannot be moved.
    #[error(
        "{pid}: has threads in cgroups of their own, such as {tid} in {cgroup}, and would lose \
         their limits; limit the cgroup that holds them all instead"
    )]
    ThreadsApart {
        /// The process.
        pid: i32,
        /// One of its threads.
        tid: i32,
        /// Where that one is.
        cgroup: String,
    },
    /// There is no such group, cgroup or process.
    #[error("{target}: no such {what}")]
    NoTarget {
        /// Name that was given.
        target: String,
        /// Kind of the missing target.
        what: &'static str,
    },
    /// A Plimsoll process gave no valid answer.
    #[error("group `{name}`: {problem}")]
    Control {
        /// The group that was asked.
        name: String,
        /// Response or error received instead of the expected answer.
        problem: String,
    },
    /// The BPF scheduler is unavailable, or a request to it failed.
    #[error("sched_ext: {problem}")]
    SchedExt {
        /// Missing feature or failed operation.
        problem: String,
    },
    /// The journal could not be kept, so nothing was changed.
    #[error("{path}: cannot use the journal: {source}", path = path.display())]
    Journal {
        /// The journal's file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl EngineError {
    /// A failed use of a kernel file.
    pub(crate) fn file(action: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self::Cgroup(CgroupError::file(action, path, source))
    }

    /// Adds the flag of a command that goes on without a knob that cannot be enforced.
    #[must_use]
    pub fn with_flag(self) -> Self {
        match self {
            Self::NotEnforceable {
                knob,
                value,
                reason,
            } => Self::NotEnforceable {
                knob,
                value,
                reason: format!("{reason}; --best-effort goes on without"),
            },
            other => other,
        }
    }

    /// The kernel's error number for a failed use of one of its files.
    pub(crate) fn os_error(&self) -> Option<i32> {
        match self {
            Self::Cgroup(error) => error.os_error(),
            _ => None,
        }
    }

    /// Returns true if a cgroup vanished: its folder, or the device behind an open file.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Cgroup(error) if error.is_gone())
    }
}

/// Result of the engine's functions.
pub type Result<T> = std::result::Result<T, EngineError>;
