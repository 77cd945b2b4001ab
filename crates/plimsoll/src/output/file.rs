//! Files of reports and pictures. Opened before the work, so that an unwritable path fails
//! early.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use crate::error::{CommandError, Result};

/// A file that will hold a result. Removed if it was created here and never
/// written.
#[derive(Debug)]
pub struct ResultFile {
    /// Name of the result in error messages.
    what: &'static str,
    path: PathBuf,
    is_new: bool,
    is_written: bool,
}

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> CommandError + use<> {
    CommandError::io(format!("{what}: cannot write {}", path.display()))
}

impl ResultFile {
    /// Checks that `path` can be written, without changing an existing file.
    pub fn open(what: &'static str, path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed(what, path))?;
        Ok(Self {
            what,
            path: path.to_owned(),
            is_new,
            is_written: false,
        })
    }

    pub fn write(mut self, text: &str) -> Result<()> {
        fs::write(&self.path, text).map_err(failed(self.what, &self.path))?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if self.is_new && !self.is_written {
            // The file is empty; a failure is not worth a message.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritable_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/such/report.html");
        for path in [folder.path(), missing.as_path()] {
            let error = ResultFile::open("report", path).unwrap_err().to_string();
            assert!(error.starts_with("report: cannot write ") && !error.contains('\n'));
        }
    }

    #[test]
    fn work_without_result_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        drop(ResultFile::open("report", &path).unwrap());
        assert!(!path.exists());
        ResultFile::open("report", &path)
            .unwrap()
            .write("first")
            .unwrap();
        drop(ResultFile::open("report", &path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    }
}
