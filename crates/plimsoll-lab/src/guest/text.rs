//! Texts of kernel files.

use std::fs;
use std::path::Path;

use crate::error::{LabError, Result};

/// Reads a kernel file, without the newline.
pub(super) fn text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let text = fs::read_to_string(path).map_err(LabError::file(path))?;
    Ok(text.trim_end().to_owned())
}
