//! Files of pictures.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{CommandError, PictureError, Result};

#[derive(Debug, Clone)]
pub struct Picture {
    path: PathBuf,
}

impl Picture {
    /// Checks that the file can be written, before the work for it begins.
    pub fn check(path: &Path) -> Result<Self> {
        if path.extension().is_none_or(|end| end != "svg") {
            return Err(PictureError::Format(path.to_owned()).into());
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if !folder.unwrap_or(Path::new(".")).is_dir() {
            return Err(PictureError::NoFolder(path.to_owned()).into());
        }
        let path = path.to_owned();
        Ok(Self { path })
    }

    pub fn write(&self, svg: &str) -> Result<()> {
        let what = format!("plot: cannot write {}", self.path.display());
        fs::write(&self.path, svg).map_err(CommandError::io(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_formats_and_missing_folders_are_refused() {
        for name in ["p.pdf", "p.png", "p", "/no/such/p.svg"] {
            let error = Picture::check(Path::new(name)).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("allowed: "),
                "{error}"
            );
        }
    }
}
