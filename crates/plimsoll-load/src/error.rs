//! Error type of the crate.

use std::fmt::Display;

/// Reason why a workload could not be started or measured.
///
/// The text of every variant is one line that can be shown to a user as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Nothing has been started.
    #[error("{field}: '{value}' is not allowed: {allowed}")]
    Invalid {
        /// Names of the settings, as on the command line but without the dashes.
        field: &'static str,
        value: String,
        allowed: String,
    },
    #[error("{doing}: {source}")]
    Io {
        doing: String,
        source: std::io::Error,
    },
    /// A thread of the workload panicked; its measurements are lost.
    #[error("a {role} thread of the workload ended abnormally")]
    ThreadDied { role: &'static str },
}

impl LoadError {
    /// Creates an [`LoadError::Io`] from any error that converts to an I/O
    /// error (also nix's `Errno`).
    pub(crate) fn io(doing: impl Display, source: impl Into<std::io::Error>) -> Self {
        Self::Io {
            doing: doing.to_string(),
            source: source.into(),
        }
    }
}
