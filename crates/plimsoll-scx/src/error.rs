//! Errors of the scheduler, and of control through it.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_engine::EngineError;

use crate::ExitReport;

/// Error of loading the scheduler, or of control through it. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedExtError {
    #[error("this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT)")]
    NoSchedExt,

    #[error("this kernel has no BTF (CONFIG_DEBUG_INFO_BTF): {0} is missing")]
    NoBtf(PathBuf),

    #[error("cannot read BTF: {0}")]
    Btf(libbpf_rs::Error),

    #[error(
        "this kernel's BTF lacks the full values of {0}; is it built without 64-bit enumerators?"
    )]
    ShortEnumerators(&'static str),

    #[error(
        "this kernel's sched_ext lacks {0}; the scheduler needs Linux 6.18 or later on x86-64, with \
         CONFIG_EXT_GROUP_SCHED"
    )]
    SchedExtLacks(String),

    /// There can be only one scheduler.
    #[error("another sched_ext scheduler is loaded: {0}")]
    OtherScheduler(String),

    /// Two owners with runtime folders of their own load one at the same time.
    #[error("another owner loads the sched_ext scheduler")]
    OtherOwner,

    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },

    #[error("{path} says {text:?}, which is not understood")]
    Parse { path: PathBuf, text: String },

    #[error("cannot {step} the scheduler: {source}{}", explanation(.reason.as_deref()))]
    Libbpf {
        /// The step: open, configure, load or attach.
        step: &'static str,
        source: libbpf_rs::Error,
        /// The line of the kernel's or libbpf's output that names the reason best.
        reason: Option<String>,
    },

    /// The scheduler was attached and thrown out again: its init failed.
    #[error("the kernel has thrown the scheduler out at once: {0}")]
    ThrownOut(Box<ExitReport>),

    /// The host lacks another requirement.
    #[error("{0}")]
    NotReady(String),

    /// A map or program of the scheduler cannot be pinned or opened.
    #[error("{path}: cannot be used: {source}")]
    Pin {
        path: PathBuf,
        source: libbpf_rs::Error,
    },

    #[error("the loaded scheduler is of another version of plimsoll; end its runs first")]
    OtherVersion,

    /// The scheduler's tables are of a fixed size.
    #[error("this machine can have {0} CPUs; the scheduler serves up to 1024")]
    TooManyCpus(u32),

    #[error("the scheduler has {0} groups already, which is the most")]
    TooManyGroups(u32),

    #[error("the scheduler tells cgroups apart down to level {0}, and this one is deeper")]
    TooDeep(u32),

    #[error("cannot {what}: {source}")]
    Change {
        what: &'static str,
        source: Box<dyn Error + Send + Sync>,
    },

    #[error(transparent)]
    Engine(#[from] EngineError),
}

fn explanation(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}

impl From<CgroupError> for SchedExtError {
    fn from(error: CgroupError) -> Self {
        EngineError::from(error).into()
    }
}

impl SchedExtError {
    pub(crate) fn change(
        what: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Change {
            what,
            source: source.into(),
        }
    }
}

impl From<SchedExtError> for EngineError {
    fn from(error: SchedExtError) -> Self {
        match error {
            SchedExtError::Engine(error) => error,
            other => Self::SchedExt {
                problem: other.to_string(),
            },
        }
    }
}
