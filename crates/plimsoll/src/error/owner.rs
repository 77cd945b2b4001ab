//! Failures between a command and the owner of the cgroup tree.

use std::io;
use std::path::PathBuf;

use plimsoll_daemon::control::server::ServerError;
use plimsoll_daemon::service::NotEnforceable;
use thiserror::Error;

/// The owner cannot be had, or does not do what was asked.
#[derive(Debug, Error)]
pub enum OwnerError {
    #[error("no daemon runs; `systemctl start plimsoll`, or `plimsoll daemon`, starts one")]
    None,
    #[error("set --reset: {}", Self::None)]
    NoneToReset,
    /// The text is the owner's.
    #[error("{0}")]
    Refused(String),
    #[error("the daemon is ending")]
    Ending,
    #[error("the owner answers {0} to another request")]
    OtherAnswer(&'static str),
    /// Another process owns the tree by now, or is about to end.
    #[error("another process owns the cgroups here and does not answer")]
    Taken,
    /// The text is the new owner's.
    #[error("{0}")]
    Itself(String),
    #[error("cannot start the owner: {0}")]
    Start(#[from] io::Error),
    #[error(
        "another process owns the cgroups below {}, and nobody answers in {}: it has \
         another PLIMSOLL_RUNTIME_DIR, or is in a container; end it first",
        .cgroups.display(),
        .runtime.display()
    )]
    OtherRuntime {
        /// Root of the tree.
        cgroups: PathBuf,
        /// Runtime folder of this process.
        runtime: PathBuf,
    },
    #[error("another process owns the cgroups here, and nobody answers; end it first")]
    Silent,
    #[error("the owner that a command has started (pid {pid}) does not end; end it first")]
    Remains { pid: u32 },
}

#[derive(Debug, Error)]
pub enum DaemonError {
    #[error(
        "a daemon runs already (pid {pid}); end it first, or change its file and use \
         `plimsoll reload`"
    )]
    RunsAlready { pid: u32 },
    #[error("{}: {source}", .file.display())]
    NotEnforceable {
        file: PathBuf,
        source: Box<NotEnforceable>,
    },
    #[error(transparent)]
    Service(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Control(#[from] ServerError),
}
