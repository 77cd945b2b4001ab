//! Error type of the crate.

use std::fmt::Display;

/// Reason why a workload could not be started or measured.
///
/// The text of every variant is one line that can be shown to a user as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting is out of range. Nothing has been started.
    #[error("{field}: {value} is not allowed: {allowed}")]
    Invalid {
        /// Name of the setting, as on the command line but without the dashes.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// Values that are allowed.
        allowed: String,
    },
    /// A value in a trace is invalid. Nothing has been started.
    #[error(transparent)]
    Trace(#[from] Box<TraceProblem>),
    /// The operating system refused an operation.
    #[error("{doing}: {source}")]
    Io {
        /// The operation.
        doing: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The peer of a TCP connection does not speak this protocol.
    #[error("{peer} is not a plimsoll load server: {reason}")]
    Protocol {
        /// Address of the peer.
        peer: String,
        /// What was wrong with its answer.
        reason: String,
    },
    /// A thread of the workload panicked; its measurements are lost.
    #[error("a {role} thread of the workload ended abnormally")]
    ThreadDied {
        /// Role of the thread.
        role: &'static str,
    },
}

/// An invalid value in a trace, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {field}: '{value}' is not allowed: {allowed}")]
pub struct TraceProblem {
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Name of the value within the line.
    pub field: &'static str,
    /// The value.
    pub value: String,
    /// Values that are allowed.
    pub allowed: String,
}

impl LoadError {
    /// Creates an [`LoadError::Invalid`] about `field`.
    pub(crate) fn invalid(field: &'static str, value: impl Display, allowed: impl Display) -> Self {
        Self::Invalid {
            field,
            value: format!("'{value}'"),
            allowed: allowed.to_string(),
        }
    }

    /// Creates an [`LoadError::Io`] from any error that converts to an I/O
    /// error (also nix's `Errno`).
    pub(crate) fn io(doing: impl Display, source: impl Into<std::io::Error>) -> Self {
        Self::Io {
            doing: doing.to_string(),
            source: source.into(),
        }
    }
}
