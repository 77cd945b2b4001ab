//! What ends a command, and the exit code that goes with it.

use std::process::ExitCode;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_engine::EngineError;
use thiserror::Error;

/// Plimsoll itself failed, or was given bad input.
pub const EXIT_FAILED: u8 = 125;
/// The command was found but could not be run.
pub const EXIT_CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// The error of a command: one readable line.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The engine's.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An owner does not answer.
    #[error(transparent)]
    Owner(#[from] plimsoll_daemon::control::client::ClientError),
    /// A workload's.
    #[error(transparent)]
    Load(#[from] plimsoll_load::LoadError),
    /// The command of `run` is nowhere on the PATH.
    #[error("{command}: not found")]
    NotFound {
        /// As it was written.
        command: String,
    },
    /// The command of `run` is there but cannot be executed.
    #[error("{command}: cannot be run: {source}")]
    CannotRun {
        /// As it was written.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file or stream could not be used.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Anything else that a sentence says best.
    #[error("{0}")]
    Other(String),
}

impl From<CgroupError> for CommandError {
    fn from(error: CgroupError) -> Self {
        EngineError::from(error).into()
    }
}

impl CommandError {
    /// An error of a file or stream.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The exit code that users were promised.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotFound { .. } => EXIT_NOT_FOUND,
            Self::CannotRun { .. } => EXIT_CANNOT_RUN,
            _ => EXIT_FAILED,
        })
    }
}

/// What commands return.
pub type Result<T> = std::result::Result<T, CommandError>;
