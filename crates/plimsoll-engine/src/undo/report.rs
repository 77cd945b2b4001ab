//! Report of an undo.

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Outcome of an undo; clients of the owner and readers of JSON get it as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoReport {
    /// Groups and targets that are as they were.
    pub undone: Vec<String>,
    /// Changes that stay for the sake of others, which is no failure.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Failures to restore, and external changes that were kept.
    pub problems: Vec<String>,
}

impl UndoReport {
    pub fn extend(&mut self, more: Self) {
        self.undone.extend(more.undone);
        self.notes.extend(more.notes);
        self.problems.extend(more.problems);
    }

    pub(crate) fn note(&mut self, result: Result<()>) {
        match result {
            Err(error) if !error.is_gone() => self.problems.push(error.to_string()),
            _ => (),
        }
    }
}
