//! Failures between a command and the owner of the cgroup tree.

use std::io;
use std::path::PathBuf;

use plimsoll_daemon::control::client::ClientError;
use plimsoll_daemon::control::server::ServerError;
use thiserror::Error;

/// The owner cannot be had, or does not do what was asked.
#[derive(Debug, Error)]
pub enum OwnerError {
    /// No owner runs.
    #[error("no daemon runs; `systemctl start plimsoll`, or `plimsoll daemon`, starts one")]
    None,
    /// No owner runs that could reset a target.
    #[error("set --reset: {}", Self::None)]
    NoneToReset,
    /// The request was refused; the text is the owner's.
    #[error("{0}")]
    Refused(String),
    /// The owner is about to end.
    #[error("the daemon is ending")]
    Ending,
    /// The owner answered another request.
    #[error("the owner answers {0} to another request")]
    OtherAnswer(&'static str),
    /// Another process owns the tree by now, or is about to end.
    #[error("another process owns the cgroups here and does not answer")]
    Taken,
    /// The new owner failed; the text is its own.
    #[error("{0}")]
    Itself(String),
    /// The new owner could not be executed.
    #[error("cannot start the owner: {0}")]
    Start(#[from] io::Error),
    /// A process owns the tree that does not listen in this runtime folder.
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
    /// A process owns the tree and does not listen.
    #[error("another process owns the cgroups here, and nobody answers; end it first")]
    Silent,
    /// An owner that a command started does not end.
    #[error("the owner that a command has started (pid {pid}) does not end; end it first")]
    Remains {
        /// Its process.
        pid: u32,
    },
}

/// The daemon could not start.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Another daemon owns the tree.
    #[error(
        "a daemon runs already (pid {pid}); end it first, or change its file and use \
         `plimsoll reload`"
    )]
    RunsAlready {
        /// Its process.
        pid: u32,
    },
    /// The service could not start.
    #[error(transparent)]
    Service(Box<dyn std::error::Error + Send + Sync>),
    /// The control socket could not be opened.
    #[error(transparent)]
    Control(#[from] ServerError),
}

/// Reason why there is no state.
#[derive(Debug, Error)]
pub enum Unanswered {
    /// No daemon listens.
    #[error("no daemon listens at {}", .0.display())]
    Nobody(PathBuf),
    /// The connection failed, or the answer is invalid.
    #[error(transparent)]
    Failed(#[from] ClientError),
    /// The answer is an error.
    #[error("the daemon answers: {0}")]
    Refused(String),
}
