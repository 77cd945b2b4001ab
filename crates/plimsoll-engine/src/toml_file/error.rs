//! What is wrong with a file, and where.

use std::path::Path;

use thiserror::Error;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Why a file cannot be used. One line.
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
    /// Something that was asked for is not in it.
    #[error("{what}: `{name}` is not in {file}; allowed: {allowed}")]
    Missing {
        /// The file, as it was named.
        file: String,
        /// What it would be.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// Which there are.
        allowed: String,
    },
}

/// A text, its name, and how to point into it.
#[derive(Debug)]
pub struct Source {
    file: String,
    text: String,
}

impl Source {
    /// A text. `file` is what messages call it.
    #[must_use]
    pub fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
        }
    }

    /// A file's text.
    ///
    /// # Errors
    /// When it cannot be read, is no text, or is longer than 4 MiB.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let unreadable = |reason: String| FileError::Unreadable {
            file: name.clone(),
            reason,
        };
        let length = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?;
        if length.len() > FILE_BYTES_MAX {
            let reason = format!("longer than {FILE_BYTES_MAX} bytes");
            return Err(unreadable(reason));
        }
        let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
        Ok(Self::new(&name, &text))
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is written there, for messages.
    #[must_use]
    pub fn written(&self, span: &std::ops::Range<usize>) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// An error at a byte of the text. The problem becomes one line.
    #[must_use]
    pub fn error(&self, start: usize, problem: impl AsRef<str>) -> FileError {
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
