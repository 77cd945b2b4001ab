//! Disk of the simulated kernel: a scratch folder, into whose files faults are injected.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::entry::Listed;

#[derive(Debug)]
pub struct Disk(TempDir);

impl Disk {
    pub(super) fn new() -> Self {
        // In memory where there is such a folder.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self(folder.expect("a scratch folder"))
    }

    pub(crate) fn real(&self, path: &Path) -> PathBuf {
        self.0.path().join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Lists all files.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut folders = vec![PathBuf::from("/")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            let found = Listed::all(&self.real(&folder), &folder);
            for found in found.expect("a folder of the scratch folder") {
                let paths = if found.is_folder {
                    &mut folders
                } else {
                    &mut files
                };
                paths.push(found.path);
            }
        }
        files
    }

    /// Reads a file as another program; `None`: there is no such file, or it is no text.
    #[must_use]
    pub fn text(&self, path: &Path) -> Option<String> {
        fs::read_to_string(self.real(path)).ok()
    }

    /// Writes a file as another program.
    pub fn others_write(&self, path: &Path, text: &str) {
        let path = self.real(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(path, text))
            .expect("a file of the scratch folder");
    }

    /// Removes a file, if it is there, as another program.
    pub fn forget(&self, path: &Path) {
        let _ = fs::remove_file(self.real(path));
    }
}
