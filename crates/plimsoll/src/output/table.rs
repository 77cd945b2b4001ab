//! Plain tables, good for a terminal and for `awk`.

use std::io::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use crate::error::{CommandError, Result};

/// A table without lines, two spaces between columns.
pub fn borderless<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.into_iter().collect::<Vec<_>>());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Prints to standard output, without spaces at the ends of lines.
pub fn print_line(text: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    // An empty text is an empty line, too.
    for line in text.split('\n') {
        writeln!(output, "{}", line.trim_end()).map_err(CommandError::io("standard output"))?;
    }
    Ok(())
}
