//! Failures of workloads and of drawings.

use std::path::PathBuf;

use thiserror::Error;

/// A workload of `demo` failed.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// A process reported an error, or died.
    #[error("{what} failed: {reason}")]
    Failed {
        /// Role of the process.
        what: String,
        /// Its last message, or its exit status.
        reason: String,
    },
    /// The service of `demo` still runs after its time.
    #[error("demo: phase {phase}: the service did not end in time")]
    ServiceTooLong {
        /// Key of the phase.
        phase: &'static str,
    },
}

/// A picture could not be made.
#[derive(Debug, Error)]
pub enum PictureError {
    /// The name of the file ends in no known format.
    #[error("plot: `{}` has an unknown format; allowed: a name that ends in .svg", .0.display())]
    Format(PathBuf),
    /// The folder of the file does not exist.
    #[error("plot: `{}` cannot be written; allowed: a file in an existing folder", .0.display())]
    NoFolder(PathBuf),
    /// The drawing failed.
    #[error("plot: cannot draw: {0}")]
    Draw(String),
}
