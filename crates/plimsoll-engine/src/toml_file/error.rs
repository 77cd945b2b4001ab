//! What is wrong with a file, and where.

use std::fs::File;
use std::io::Read as _;
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

/// The text of a file of up to `bytes_max` bytes.
///
/// # Errors
/// When it cannot be read, is longer, no regular file or no text: with the line
/// of the first byte that is none.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, FileError> {
    let file = path.display().to_string();
    let unreadable = |reason: String| FileError::Unreadable {
        file: file.clone(),
        reason,
    };
    let failed = |error: std::io::Error| unreadable(error.to_string());
    // Before it is opened: to open a pipe is to wait for its other end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(unreadable("it is no regular file".into()));
    }
    let mut bytes = Vec::new();
    let mut reader = File::open(path).map_err(failed)?.take(bytes_max + 1);
    reader.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(unreadable(format!("longer than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line_start = good.iter().rposition(|byte| *byte == b'\n');
        let line = &good[line_start.map_or(0, |newline| newline + 1)..];
        FileError::At {
            file: file.clone(),
            line: 1 + good.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + String::from_utf8_lossy(line).chars().count(),
            problem: "bytes that are no text; allowed: text in UTF-8".into(),
        }
    })
}

/// A text, its name, and how to point into it.
#[derive(Debug)]
pub struct Source {
    file: String,
    text: String,
    /// Where each line begins, in bytes: a long file may have many errors.
    line_starts: Vec<usize>,
}

impl Source {
    /// A text. `file` is what messages call it.
    #[must_use]
    pub fn new(file: &str, text: &str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            line_starts: std::iter::once(0).chain(newlines).collect(),
        }
    }

    /// A file's text.
    ///
    /// # Errors
    /// As [`read_text`], of up to 4 MiB.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = read_text(path, FILE_BYTES_MAX)?;
        Ok(Self::new(&path.display().to_string(), &text))
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
        let (line, column) = self.place(start);
        FileError::At {
            file: self.file.clone(),
            line,
            column,
            problem: problem.as_ref().replace(char::is_control, " "),
        }
    }

    /// Line, and column in characters, of a byte of the text, both from 1.
    #[must_use]
    pub fn place(&self, start: usize) -> (usize, usize) {
        let before = self.text.get(..start).unwrap_or(&self.text);
        let line = self
            .line_starts
            .partition_point(|first| *first <= before.len());
        // The first line begins at 0, so there is one.
        let column = 1 + before[self.line_starts[line - 1]..].chars().count();
        (line, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_line_and_a_column_in_characters() {
        let source = Source::new("s.toml", "a\nüb\n\nc");
        let places = [
            (0, 1, 1),
            (1, 1, 2),
            (2, 2, 1),
            (4, 2, 2),
            (6, 3, 1),
            (7, 4, 1),
            (8, 4, 2),
        ];
        for (start, line, column) in places {
            assert_eq!(source.place(start), (line, column), "{start}");
        }
        assert_eq!(source.place(99), (4, 2));
        assert_eq!(Source::new("s.toml", "").place(0), (1, 1));
    }

    #[test]
    fn what_is_no_short_text_is_refused_before_it_fills_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = read_text(&path, 4).unwrap_err().to_string();
        assert!(error.ends_with("longer than 4 bytes"), "{error}");
        std::fs::write(&path, b"a = 1\nb = '\xff'\n").unwrap();
        let error = read_text(&path, 99).unwrap_err().to_string();
        assert!(
            error.contains("s.toml:2:6: bytes that are no text"),
            "{error}"
        );
        for other in [Path::new("/dev/zero"), folder.path()] {
            let error = read_text(other, 5).unwrap_err().to_string();
            assert!(error.ends_with("it is no regular file"), "{error}");
        }
    }
}
