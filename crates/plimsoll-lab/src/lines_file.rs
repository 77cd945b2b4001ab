//! Files of rows as JSON: a line for each row, so that a change of a figure is a change of a line.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{LabError, Result};

/// Reads the rows of a file that has this schema.
pub fn read<Row: DeserializeOwned>(path: &Path, schema: &str, key: &str) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path).map_err(LabError::file(path))?;
    let bad = |why: String| LabError::Results {
        path: path.to_owned(),
        why,
    };
    let mut file: Value = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    let found = file["schema"].as_str().unwrap_or_default();
    if found != schema {
        return Err(bad(format!("its schema is '{found}'; allowed: {schema}")));
    }
    let rows = file.get_mut(key).map(Value::take).unwrap_or_default();
    serde_json::from_value(rows).map_err(|error| bad(error.to_string()))
}

pub fn write<Row: Serialize>(path: &Path, schema: &str, key: &str, rows: &[Row]) -> Result<()> {
    let line = |row: &Row| serde_json::to_string(row).unwrap_or_default();
    let lines: Vec<String> = rows.iter().map(line).collect();
    let text = format!(
        "{{\"schema\": \"{schema}\", \"{key}\": [\n{}\n]}}\n",
        lines.join(",\n")
    );
    fs::write(path, text).map_err(LabError::file(path))
}
