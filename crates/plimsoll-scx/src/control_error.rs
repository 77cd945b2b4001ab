//! Errors of control through the scheduler.

use std::error::Error as StdError;
use std::path::PathBuf;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_engine::EngineError;

use crate::Error;

/// Error of control through the scheduler. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    #[error(transparent)]
    Load(#[from] Error),

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

    #[error("cannot {what}: {source}")]
    Change {
        what: &'static str,
        source: Box<dyn StdError + Send + Sync>,
    },

    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<CgroupError> for ControlError {
    fn from(error: CgroupError) -> Self {
        EngineError::from(error).into()
    }
}

impl ControlError {
    pub(crate) fn change(
        what: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Change {
            what,
            source: source.into(),
        }
    }
}

impl From<ControlError> for EngineError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Engine(error) => error,
            other => Self::SchedExt {
                problem: other.to_string(),
            },
        }
    }
}
