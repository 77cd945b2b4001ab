//! Errors of commands, with their exit codes.

mod owner;
mod usage;
mod work;

use std::process::ExitCode;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_daemon::control::client::ClientError;
use plimsoll_engine::EngineError;
use plimsoll_engine::text_file::FileError;
use plimsoll_sim::interference::{ExperimentError, SamplesError};
use thiserror::Error;

pub use owner::{DaemonError, OwnerError};
pub use usage::UsageError;
pub use work::{PictureError, WorkloadError};

/// A change is made, but cannot be printed: as of other tools, and not as of bad input.
pub const EXIT_UNPRINTED: u8 = 1;
/// Plimsoll itself failed, or was given bad input.
pub const EXIT_FAILED: u8 = 125;
/// The command was found but could not be run.
pub const EXIT_CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// The error of a command: one readable line.
#[derive(Debug, Error)]
pub enum CommandError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A process that the user names is not there, or cannot be opened.
    #[error(transparent)]
    Handle(#[from] plimsoll_daemon::control::handles::HandleError),
    /// The owner refused a request, or there is none.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Load(#[from] plimsoll_load::LoadError),
    /// A text file, such as the configuration, is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Samples(#[from] SamplesError),
    #[error("debug: {0}")]
    Scheduler(#[from] plimsoll_scx::Error),
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error("standard output: {0}")]
    Output(#[source] std::io::Error),
    #[error("cannot print JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// The knobs that `doctor` plans are invalid.
    #[error("doctor: {0}")]
    Doctor(#[source] serde_json::Error),
    /// The process that was to run the command has died.
    #[error("the command could not be started")]
    NotStarted,
    /// The command of `run` is nowhere on the PATH.
    #[error("{}: not found", if .command.is_empty() { "''" } else { .command.as_str() })]
    NotFound { command: String },
    #[error("{command}: cannot be run: {source}")]
    CannotRun {
        command: String,
        source: std::io::Error,
    },
    #[error("{what}: {source}")]
    Io {
        /// The operation, or the file.
        what: String,
        source: std::io::Error,
    },
}

impl From<CgroupError> for CommandError {
    fn from(error: CgroupError) -> Self {
        EngineError::from(error).into()
    }
}

impl CommandError {
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Returns whether an owner has ended without carrying out a request.
    pub fn is_end_of_owner(&self) -> bool {
        matches!(
            self,
            Self::Owner(OwnerError::Ending)
                | Self::Client(ClientError::Ended {
                    is_unread: true,
                    ..
                })
        )
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotFound { .. } => EXIT_NOT_FOUND,
            Self::CannotRun { .. } => EXIT_CANNOT_RUN,
            _ => EXIT_FAILED,
        })
    }
}

pub type Result<T> = std::result::Result<T, CommandError>;
