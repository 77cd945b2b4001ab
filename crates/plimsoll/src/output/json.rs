//! JSON documents, with name and version of their schema.

use serde::Serialize;

use super::table;
use crate::error::{CommandError, Result};

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

pub fn text(schema: &str, body: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(&Document { schema, body }).map_err(CommandError::Json)
}

/// Prints a document to standard output. JSON leaves some control characters as they are, and a
/// terminal obeys them.
pub fn print(schema: &str, body: &impl Serialize) -> Result<()> {
    let mut shown = String::new();
    for letter in text(schema, body)?.chars() {
        match letter {
            // Between the values; inside of a text it is escaped already.
            '\n' => shown.push(letter),
            _ if letter.is_control() => shown += &format!("\\u{:04x}", u32::from(letter)),
            _ => shown.push(letter),
        }
    }
    shown.push('\n');
    table::print_bytes(shown.as_bytes()).map(drop)
}
