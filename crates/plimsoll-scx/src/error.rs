//! Errors between the scheduler and the kernel.

use std::io;
use std::path::PathBuf;

use crate::ExitReport;

/// Error of loading the scheduler. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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

    /// There can be only one scheduler.
    #[error("another sched_ext scheduler is loaded: {0}")]
    OtherScheduler(String),

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
}

fn explanation(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}
