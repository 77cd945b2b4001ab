//! What can go wrong between a wish and the kernel.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::knobs::KnobError;
use crate::runtime::LockBusy;

/// An error of the engine, one readable line each.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A knob's value, alone or together with others, cannot be used.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A kernel file or folder could not be used.
    #[error("{path}: cannot {action}: {source}", path = path.display())]
    Cgroup {
        /// What was tried, such as `write "max 100000"`.
        action: String,
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A kernel file holds something unexpected.
    #[error("{path}: cannot make sense of `{text}`", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Its text.
        text: String,
    },
    /// There is no cpu controller to be had.
    #[error("no cpu controller: {reason}")]
    NoController {
        /// What was found instead, and what would help.
        reason: String,
    },
    /// Neither root nor a delegated subtree.
    #[error("no permission to create or change cgroups below {path}: {help}", path = path.display())]
    NoPermission {
        /// Where it was tried.
        path: PathBuf,
        /// What would give the permission.
        help: String,
    },
    /// This host cannot enforce a knob.
    #[error("{knob}: cannot be `{value}` here: {reason}")]
    NotEnforceable {
        /// The knob's name.
        knob: &'static str,
        /// Its value.
        value: String,
        /// Why not, and what could.
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
    /// There is no such group, cgroup or process.
    #[error("{target}: no such {what}")]
    NoTarget {
        /// What was named.
        target: String,
        /// What it would have been.
        what: &'static str,
    },
    /// A process of ours did not answer as it should.
    #[error("group `{name}`: {problem}")]
    Control {
        /// The group that was asked.
        name: String,
        /// What came instead of an answer.
        problem: String,
    },
    /// The BPF scheduler cannot be had, or did not do what it was asked for.
    #[error("sched_ext: {problem}")]
    SchedExt {
        /// What is missing or went wrong.
        problem: String,
    },
    /// Another process of ours holds the lock of the runtime folder.
    #[error(transparent)]
    LockBusy(LockBusy),
    /// The journal could not be kept, so nothing was changed.
    #[error("{path}: cannot keep the journal: {source}", path = path.display())]
    Journal {
        /// The journal's file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl EngineError {
    /// A failed use of a cgroup file.
    pub(crate) fn cgroup(action: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self::Cgroup {
            action: action.into(),
            path: path.to_owned(),
            source,
        }
    }

    /// Whether a cgroup vanished: its folder, or the device behind an open file.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Cgroup { source, .. } => {
                matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
            }
            _ => false,
        }
    }
}

/// What the engine's functions return.
pub type Result<T> = std::result::Result<T, EngineError>;
