//! The report's file: whether it can be written is known before the demo.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use crate::error::{CommandError, Result};

/// A file that will hold a report. One that was created and never written
/// is removed again.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    is_new: bool,
    is_written: bool,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> CommandError + use<> {
    CommandError::io(format!("report: cannot write {}", path.display()))
}

impl ReportFile {
    /// Makes sure that `path` can be written, and changes nothing there yet.
    pub fn open(path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed(path))?;
        Ok(Self {
            path: path.to_owned(),
            is_new,
            is_written: false,
        })
    }

    /// Writes the report.
    pub fn write(mut self, text: &str) -> Result<()> {
        fs::write(&self.path, text).map_err(failed(&self.path))?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_new && !self.is_written {
            // Empty, and not worth a message.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_known_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/such/report.html");
        for path in [folder.path(), missing.as_path()] {
            let error = ReportFile::open(path).unwrap_err().to_string();
            assert!(error.starts_with("report: cannot write ") && !error.contains('\n'));
        }
    }

    #[test]
    fn nothing_is_left_of_a_demo_without_result() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        drop(ReportFile::open(&path).unwrap());
        assert!(!path.exists());
        ReportFile::open(&path).unwrap().write("first").unwrap();
        drop(ReportFile::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    }
}
