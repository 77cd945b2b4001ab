//! The crate's one error type.

use std::fmt::Display;

/// Why a workload could not be started or measured.
///
/// The text of every variant is one line, fit to be shown to a user as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting is outside of what is allowed. Nothing has been started.
    #[error("{field}: {value} is not allowed: {allowed}")]
    Invalid {
        /// Name of the setting, as on the command line but without the dashes.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// What would have been accepted.
        allowed: String,
    },
    /// Something in a trace is not allowed. Nothing has been started.
    #[error(transparent)]
    Trace(#[from] Box<TraceProblem>),
    /// The operating system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The peer of a TCP connection doesn't speak this protocol.
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
        /// What the thread was for.
        role: &'static str,
    },
}

/// What is not allowed in a trace, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {field}: '{value}' is not allowed: {allowed}")]
pub struct TraceProblem {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Which value of the line.
    pub field: &'static str,
    /// What is there.
    pub value: String,
    /// What would have been accepted.
    pub allowed: String,
}

impl LoadError {
    /// An [`LoadError::Invalid`] about `field`.
    pub(crate) fn invalid(field: &'static str, value: impl Display, allowed: impl Display) -> Self {
        Self::Invalid {
            field,
            value: format!("'{value}'"),
            allowed: allowed.to_string(),
        }
    }

    /// An [`LoadError::Io`] from anything that turns into an I/O error (also nix's `Errno`).
    pub(crate) fn io(doing: impl Display, source: impl Into<std::io::Error>) -> Self {
        Self::Io {
            doing: doing.to_string(),
            source: source.into(),
        }
    }
}
