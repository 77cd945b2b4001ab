//! Results on standard output.

use std::io::Write;

use serde::Serialize;

use crate::error::LoadError;
use crate::report::Document;

/// Prints a report: with `json` in one line, else for a reader.
pub(super) fn print<T: Serialize>(json: bool, command: &str, report: T) -> Result<(), LoadError> {
    let document = Document::new(command, report);
    let text = if json {
        serde_json::to_string(&document)
    } else {
        serde_json::to_string_pretty(&document)
    };
    let text = text.map_err(|e| LoadError::io("writing JSON", e))?;
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // The work is done, although the reader of the report has gone.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|e| LoadError::io("writing to standard output", e)),
    }
}
