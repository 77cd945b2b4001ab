//! What can go wrong once there is a scheduler, or while it is sought.

use std::error::Error as StdError;
use std::path::PathBuf;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_engine::EngineError;

use crate::Error;

/// Why a group cannot be controlled through the scheduler. One line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The scheduler cannot be loaded.
    #[error(transparent)]
    Load(#[from] Error),

    /// The host lacks something else that it needs.
    #[error("{0}")]
    NotReady(String),

    /// A map or program of the scheduler cannot be pinned or opened.
    #[error("{path}: cannot be used: {source}")]
    Pin {
        /// The pin.
        path: PathBuf,
        /// Why not.
        source: libbpf_rs::Error,
    },

    /// The scheduler in the kernel is not the one of this program.
    #[error("the loaded scheduler is of another version of plimsoll; end its runs first")]
    OtherVersion,

    /// The scheduler's tables are of a fixed size.
    #[error("this machine can have {0} CPUs; the scheduler serves up to 1024")]
    TooManyCpus(u32),

    /// No slot is left for another group.
    #[error("the scheduler has {0} groups already, which is the most")]
    TooManyGroups(u32),

    /// It is loaded in another mode than asked for.
    #[error("the scheduler is loaded in mode {loaded}; end its runs first, or use --mode {loaded}")]
    OtherMode {
        /// The mode in which it runs.
        loaded: String,
    },

    /// Something that the scheduler was asked for was not done.
    #[error("cannot {what}: {source}")]
    Change {
        /// What was asked for.
        what: &'static str,
        /// Why it was not done.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The engine's.
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
