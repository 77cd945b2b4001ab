//! Failures of workloads and of drawings.

use std::path::PathBuf;

use thiserror::Error;

/// A workload of `demo` failed.
#[derive(Debug, Error)]
pub enum WorkloadError {
    #[error("{what} failed: {reason}")]
    Failed {
        /// Role of the process.
        what: String,
        /// Last message of the process, or its exit status.
        reason: String,
    },
    #[error("demo: phase {phase}: the service did not end in time")]
    ServiceTooLong {
        /// Key of the phase.
        phase: &'static str,
    },
}

#[derive(Debug, Error)]
pub enum PictureError {
    #[error("plot: `{}` has an unknown format; allowed: a name that ends in .svg", .0.display())]
    Format(PathBuf),
    #[error("plot: cannot draw: {0}")]
    Draw(String),
}
