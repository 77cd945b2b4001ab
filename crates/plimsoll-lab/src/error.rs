//! Errors of the lab.

use std::path::PathBuf;

use thiserror::Error;

/// An error of the lab, as one readable line.
#[derive(Debug, Error)]
pub enum LabError {
    #[error("cell '{name}': {why}")]
    Cell { name: String, why: String },
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {why}", path.display())]
    Results { path: PathBuf, why: String },
    #[error("cannot run {what}: {why}")]
    Command { what: String, why: String },
    /// A failure in the guest.
    #[error("{0}")]
    Guest(String),
    #[error("load: {0}")]
    Load(String),
    #[error("cannot draw {what}: {why}")]
    Drawing { what: String, why: String },
    #[error("{0} of the measurements failed")]
    Failed(usize),
}

pub type Result<T> = std::result::Result<T, LabError>;

impl LabError {
    /// A file that cannot be read or written.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// A command that cannot be run.
    pub fn command(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Command {
            what,
            why: error.to_string(),
        }
    }

    /// A workload that fails while it does something.
    pub fn load(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Load(format!("{doing}: {error}"))
    }
}
