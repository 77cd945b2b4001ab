//! JSON documents, with name and version of their schema.

use serde::Serialize;

use super::print_line;
use crate::error::{CommandError, Result};

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

/// Serialises a document.
pub fn text(schema: &str, body: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(&Document { schema, body }).map_err(CommandError::Json)
}

/// Prints a document to standard output.
pub fn print(schema: &str, body: &impl Serialize) -> Result<()> {
    print_line(&text(schema, body)?)
}
