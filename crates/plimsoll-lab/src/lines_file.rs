//! Files of rows as JSON: a line for each row, so that a change of a figure is a change of a line.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{LabError, Result};

/// A row of a file.
pub trait Stored: Serialize + DeserializeOwned {
    const SCHEMA: &'static str;
    /// Key of the rows in the file.
    const KEY: &'static str;

    /// Name of the cell, of which a repeated measurement replaces all rows.
    fn cell(&self) -> &str;
}

/// Reads the rows of a file that has their schema.
pub fn read<Row: Stored>(path: &Path) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path).map_err(LabError::file(path))?;
    let bad = |why: String| LabError::Results {
        path: path.to_owned(),
        why,
    };
    let mut file: Value = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    let found = file["schema"].as_str().unwrap_or_default();
    if found != Row::SCHEMA {
        let allowed = Row::SCHEMA;
        return Err(bad(format!("its schema is '{found}'; allowed: {allowed}")));
    }
    let rows = file.get_mut(Row::KEY).map(Value::take).unwrap_or_default();
    serde_json::from_value(rows).map_err(|error| bad(error.to_string()))
}

/// Writes rows sorted by their cells, so that a repeated measurement moves none. Rows of one cell
/// stay in their order.
pub fn write<Row: Stored>(path: &Path, mut rows: Vec<Row>) -> Result<()> {
    rows.sort_by(|a, b| a.cell().cmp(b.cell()));
    let line = |row: &Row| serde_json::to_string(row).unwrap_or_default();
    let lines: Vec<String> = rows.iter().map(line).collect();
    let text = format!(
        "{{\"schema\": \"{}\", \"{}\": [\n{}\n]}}\n",
        Row::SCHEMA,
        Row::KEY,
        lines.join(",\n")
    );
    fs::write(path, text).map_err(LabError::file(path))
}

/// Writes rows into a file in which those of other cells stay. There may be no file yet.
pub fn merge<Row: Stored>(path: &Path, new: Vec<Row>) -> Result<()> {
    let mut rows: Vec<Row> = if path.exists() {
        read(path)?
    } else {
        Vec::new()
    };
    rows.retain(|old| new.iter().all(|new| new.cell() != old.cell()));
    rows.extend(new);
    write(path, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::CellOutcome;

    fn outcome(cell: &str, kernel: &str) -> CellOutcome {
        CellOutcome {
            cell: cell.to_owned(),
            kernel: kernel.to_owned(),
            figures: [("p99_us".to_owned(), 1.5)].into(),
        }
    }

    #[test]
    fn new_rows_replace_those_of_the_same_cell() {
        let path = std::env::temp_dir().join(format!("plimsoll-lab-{}", std::process::id()));
        let [old, first, second] = ["old", "first", "second"].map(|kernel| outcome("b", kernel));
        let other = outcome("a", "other");
        merge(&path, vec![old, other.clone()]).unwrap();
        merge(&path, vec![first.clone(), second.clone()]).unwrap();
        let rows: Vec<CellOutcome> = read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(rows, [other, first, second]);
    }
}
