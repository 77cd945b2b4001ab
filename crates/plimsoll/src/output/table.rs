//! Plain tables for terminals and `awk`.

use std::io::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use plimsoll_cgroupfs::name::printable;

use crate::error::{CommandError, Result};

/// A table without lines, with two spaces between columns.
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

/// Prints to standard output in a single write, because a thousand groups take
/// tens of thousands of lines. Removes trailing spaces, and shows what would control the terminal,
/// such as in the name of a cgroup.
pub fn print_line(text: &str) -> Result<()> {
    let mut trimmed = String::with_capacity(text.len() + 1);
    // An empty text is an empty line.
    for line in text.split('\n') {
        trimmed.push_str(&printable(line.trim_end()));
        trimmed.push('\n');
    }
    print(&trimmed)
}

/// Prints to standard output as it is.
pub(super) fn print(text: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .map_err(CommandError::io("standard output"))
}
