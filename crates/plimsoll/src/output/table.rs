//! Plain tables for terminals and `awk`.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};

use plimsoll_cgroupfs::name::printable;

use crate::error::{CommandError, Result};

/// Width of the names of facts, with the spaces behind them.
const NAME_WIDTH: u16 = 12;

/// A table without lines, with two spaces between columns.
pub fn borderless<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.set_header(header.into_iter().collect::<Vec<_>>());
    without_lines(table)
}

/// A table of names and values.
pub fn facts<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> Table {
    let mut table = Table::new();
    table.add_rows(rows.into_iter().map(|(name, value)| [name.into(), value]));
    let mut table = without_lines(table);
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(NAME_WIDTH)));
    }
    table
}

fn without_lines(mut table: Table) -> Table {
    table.load_style(NOTHING);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    // A text of the last one may have the width to its end.
    if let Some(last) = table.column_iter_mut().next_back() {
        last.set_padding((0, 0));
    }
    table
}

/// Text of a table, wrapped to `width`; `None`: no cell is wrapped.
pub fn fitted(mut table: Table, width: Option<u16>) -> String {
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    table.to_string()
}

/// Prints to standard output in a single write, because a thousand groups take
/// tens of thousands of lines. Removes trailing spaces, and shows what would control the terminal,
/// such as in the name of a cgroup. A reader that has gone, as in `plimsoll show | head -1`, is no
/// failure: the work is done.
pub fn print_line(text: &str) -> Result<()> {
    print_while_read(text).map(drop)
}

/// Prints as [`print_line`] does, and returns whether there still is a reader: without one, a long
/// output ends.
pub fn print_while_read(text: &str) -> Result<bool> {
    let mut trimmed = String::with_capacity(text.len() + 1);
    // An empty text is an empty line.
    for line in text.split('\n') {
        trimmed.push_str(&printable(line.trim_end_matches(' ')));
        trimmed.push('\n');
    }
    print_bytes(trimmed.as_bytes())
}

/// Prints bytes to standard output as they are, and returns whether there still is a reader.
pub fn print_bytes(bytes: &[u8]) -> Result<bool> {
    write_while_read(&mut io::stdout().lock(), bytes).map_err(CommandError::Output)
}

fn write_while_read(output: &mut impl Write, bytes: &[u8]) -> io::Result<bool> {
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}
