//! What is wrong with a file, and where.

use thiserror::Error;

/// Why there is no scenario. One line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileError {
    /// Something in the file is not allowed.
    #[error("{file}:{line}:{column}: {problem}")]
    At {
        /// The file, as it was named.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Field, value and what is allowed.
        problem: String,
    },
    /// The file cannot be read.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// The file, as it was named.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// There is no variant of that name.
    #[error("variant: `{name}` is not in {file}; allowed: {allowed}")]
    NoVariant {
        /// The file, as it was named.
        file: String,
        /// What was asked for.
        name: String,
        /// Which there are.
        allowed: String,
    },
}

/// A text, its name, and how to point into it.
#[derive(Debug)]
pub(super) struct Source {
    file: String,
    text: String,
}

impl Source {
    pub(super) fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What is written from `start` to `end`, for messages.
    pub(super) fn written(&self, span: &std::ops::Range<usize>) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// An error at a byte of the text. The problem becomes one line.
    pub(super) fn error(&self, start: usize, problem: impl AsRef<str>) -> FileError {
        let before = self.text.get(..start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FileError::At {
            file: self.file.clone(),
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_start..].chars().count(),
            problem: problem.as_ref().replace(char::is_control, " "),
        }
    }
}
