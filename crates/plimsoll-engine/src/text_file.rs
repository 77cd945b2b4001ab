//! Text files that users write, and errors that name line and column.

use std::io;
use std::path::Path;

use plimsoll_cgroupfs::os::{self, Access};
use thiserror::Error;

const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reason why a file cannot be used, on one line.
#[derive(Debug, Error)]
pub enum FileError {
    #[error("{file}:{line}:{column}: {problem}")]
    At {
        /// File, as it was named.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Field, value and allowed values.
        problem: String,
    },
    #[error("{file}: cannot be read: {reason}")]
    Unreadable { file: String, reason: io::Error },
    /// Folder, pipe or device instead of a file.
    #[error("{file}: cannot be read: it is no regular file")]
    NotRegular { file: String },
    #[error("{file}: cannot be read: longer than {bytes_max} bytes")]
    TooLong { file: String, bytes_max: u64 },
}

/// Reads the text of a file of up to `bytes_max` bytes.
///
/// # Errors
/// When the file cannot be read, is longer, no regular file, or not UTF-8: then the error has the
/// line of the first invalid byte.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, FileError> {
    let file = path.display().to_string();
    let failed = |reason| FileError::Unreadable {
        file: file.clone(),
        reason,
    };
    // Before the file is opened, because opening a pipe waits for its writer.
    if !os::look(path).map_err(failed)?.is_regular {
        return Err(FileError::NotRegular { file });
    }
    let mut reader = os::File::open(path, Access::Read).map_err(failed)?;
    let bytes = reader.read_up_to(bytes_max + 1).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(FileError::TooLong { file, bytes_max });
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let valid = String::from_utf8_lossy(valid);
        let problem = "bytes that are no text; allowed: text in UTF-8";
        Source::new(&file, &valid).error(valid.len(), problem)
    })
}

/// Text with its name, which finds the line and column of a byte.
#[derive(Debug)]
pub struct Source {
    file: String,
    text: String,
}

impl Source {
    /// Wraps a text, which messages call `file`.
    #[must_use]
    pub fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Reads a file of up to 4 MiB; fails as [`read_text`] does.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = read_text(path, FILE_BYTES_MAX)?;
        Ok(Self::new(&path.display().to_string(), &text))
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Creates an error at a byte of the text. The problem becomes one line.
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

    /// Returns line, and column in characters, of a byte of the text, both from 1.
    fn place(&self, start: usize) -> (usize, usize) {
        let before = self.text.get(..start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.matches('\n').count();
        (line, 1 + before[line_start..].chars().count())
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
    fn long_files_and_devices_are_refused_before_they_fill_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        let error = read_text(&path, 5).unwrap_err().to_string();
        assert!(error.ends_with("cannot be read: No such file or directory (os error 2)"));
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = read_text(&path, 4).unwrap_err().to_string();
        assert!(error.ends_with("longer than 4 bytes"), "{error}");
        // The kernel says that its files are empty.
        let error = read_text(Path::new("/proc/self/status"), 4).unwrap_err();
        assert!(matches!(error, FileError::TooLong { .. }), "{error}");
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
