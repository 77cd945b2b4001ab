//! Errors of the engine.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::CgroupError;
use thiserror::Error;

use crate::knobs::KnobError;

/// Error of the engine. Each text is one line.
#[derive(Debug, Error)]
pub enum EngineError {
    #[error(transparent)]
    Knob(#[from] KnobError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("{knob}: cannot be `{value}` here: {reason}")]
    NotEnforceable {
        knob: &'static str,
        value: String,
        /// Reason, and an alternative that can.
        reason: String,
    },
    #[error("group `{name}` exists already; choose another --name, or see `plimsoll show {name}`")]
    NameTaken { name: String },
    #[error("{target}: is in group `{name}` already; change that: plimsoll set {name}")]
    CgroupTaken { target: String, name: String },
    #[error(
        "name: `{name}` is not allowed; allowed: 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter or digit, not a number alone, which is a pid, and not the name of a file of the kernel's such as `tasks` or `cpu.max`"
    )]
    BadName { name: String },
    #[error(
        "{pid}: is a real-time task, or has one, and this kernel lets none into a cgroup without \
         real-time runtime of its own; start the command without, such as by `chrt -o 0`"
    )]
    RealTime { pid: i32 },
    #[error(
        "{pid}: has threads in cgroups of their own, such as {tid} in {cgroup}, and would lose \
         their limits; limit the cgroup that holds them all instead"
    )]
    ThreadsApart { pid: i32, tid: i32, cgroup: String },
    #[error(
        "group `{name}`: this change moves its processes to new cgroups, and {cgroup}, which \
         another program has made inside, would be lost with its limits; move its processes out \
         and remove it first"
    )]
    InnerCgroup { name: String, cgroup: String },
    #[error(
        "{pid}: is frozen in {cgroup}, and would thaw in another cgroup; thaw it first, or set \
         limits on the cgroup {cgroup}"
    )]
    Frozen { pid: i32, cgroup: String },
    #[error(
        "group `{name}`: is frozen in {cgroup}, and this change moves its processes to new \
         cgroups, where they would thaw; thaw it first"
    )]
    GroupFrozen { name: String, cgroup: String },
    #[error("{target}: no such {what}")]
    NoTarget { target: String, what: &'static str },
    /// Failure of a control loop, of a journal that takes no more entries, or of an undo that a new
    /// group of this name waits for.
    #[error("group `{name}`: {problem}")]
    Group { name: String, problem: String },
    #[error("sched_ext: {problem}")]
    SchedExt { problem: String },
    #[error("{path}: cannot be the runtime folder: {problem}; allowed: a folder of this user that no other user may write to", path = path.display())]
    RuntimeFolder { path: PathBuf, problem: String },
    /// Journal that could not be kept, so that nothing was changed.
    #[error("{path}: cannot use the journal: {source}", path = path.display())]
    Journal { path: PathBuf, source: io::Error },
}

impl EngineError {
    pub(crate) fn file(action: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self::Cgroup(CgroupError::file(action, path, source))
    }

    /// Adds to the message the flag with which a command goes on without a knob that cannot be
    /// enforced.
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

    /// The knob that cannot be had; `None`: the error is not about one.
    pub fn knob(&self) -> Option<&'static str> {
        match self {
            Self::Knob(error) => Some(error.knob),
            Self::NotEnforceable { knob, .. } => Some(*knob),
            _ => None,
        }
    }

    /// Returns the kernel's error number for a failed use of one of its files.
    pub(crate) fn os_error(&self) -> Option<i32> {
        match self {
            Self::Cgroup(error) => error.os_error(),
            _ => None,
        }
    }

    /// Returns whether a cgroup vanished: its folder, or the device behind an open file.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Cgroup(error) if error.is_gone())
    }
}

pub type Result<T> = std::result::Result<T, EngineError>;
