//! Reading and writing kernel files, with the path in every error.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::error::{EngineError, Result};

/// The trimmed text of a kernel file.
///
/// # Errors
/// When it cannot be read.
pub fn read_text(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(source) => Err(EngineError::cgroup("read", path, source)),
    }
}

/// Writes `text` to a kernel file in one call.
///
/// # Errors
/// When the kernel refuses.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| EngineError::cgroup(format!("write `{text}`"), path, source))
}

/// A kernel file that holds one number.
///
/// # Errors
/// When it cannot be read or holds something else.
pub(crate) fn read_number<T: std::str::FromStr>(path: &Path) -> Result<T> {
    let text = read_text(path)?;
    text.parse().map_err(|_| EngineError::Unreadable {
        path: path.to_owned(),
        text,
    })
}

/// A kernel file that holds one number a line, such as `cgroup.procs`.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read_ids(path: &Path) -> Result<Vec<i32>> {
    Ok(read_text(path)?
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect())
}
