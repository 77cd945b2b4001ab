//! Figures of cells, as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::error::{LabError, Result};

pub const SCHEMA: &str = "plimsoll.lab/1";

/// Named numbers. Names carry their unit.
pub type Figures = BTreeMap<String, f64>;

/// Result of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub cell: String,
    /// The kernel's own version.
    pub kernel: String,
    pub figures: Figures,
}

/// All cells of a file, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub schema: String,
    pub cells: Vec<Outcome>,
}

impl Results {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(LabError::file(path))?;
        let bad = |why: String| LabError::Results {
            path: path.to_owned(),
            why,
        };
        let results: Self = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        if results.schema != SCHEMA {
            return Err(bad(format!(
                "its schema is '{}'; allowed: {SCHEMA}",
                results.schema
            )));
        }
        Ok(results)
    }

    /// Sorted, so that a repeated measurement changes nothing in the file.
    pub fn write(mut self, path: &Path) -> Result<()> {
        SCHEMA.clone_into(&mut self.schema);
        self.cells.sort_by(|a, b| a.cell.cmp(&b.cell));
        let lines: Vec<String> = self.cells.iter().map(line).collect();
        let text = format!(
            "{{\"schema\": \"{SCHEMA}\", \"cells\": [\n{}\n]}}\n",
            lines.join(",\n")
        );
        fs::write(path, text).map_err(LabError::file(path))
    }

    #[must_use]
    pub fn of(&self, cell: &Cell) -> Option<&Outcome> {
        let name = cell.to_string();
        self.cells.iter().find(|outcome| outcome.cell == name)
    }

    #[must_use]
    pub fn figure(&self, cell: &Cell, name: &str) -> Option<f64> {
        self.of(cell)?.figures.get(name).copied()
    }
}

/// One line of the file.
fn line(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap_or_default()
}

/// Folder with a file for each measured cell, so that an interrupted run can resume.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

/// Content of a cell's file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Digest of all files in the guest.
    programs: String,
    outcome: Outcome,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(LabError::file(path))?;
        Ok(Self(path.to_owned()))
    }

    fn file(&self, cell: &Cell) -> PathBuf {
        self.0
            .join(format!("{}.json", cell.to_string().replace('/', "_")))
    }

    /// Returns the outcome of a cell if it was measured with the same programs.
    #[must_use]
    pub fn get(&self, cell: &Cell, programs: &str) -> Option<Outcome> {
        let text = fs::read_to_string(self.file(cell)).ok()?;
        let kept: Kept = serde_json::from_str(&text).ok()?;
        (kept.programs == programs).then_some(kept.outcome)
    }

    pub fn put(&self, cell: &Cell, programs: &str, outcome: &Outcome) -> Result<()> {
        let path = self.file(cell);
        let kept = Kept {
            programs: programs.to_owned(),
            outcome: outcome.clone(),
        };
        let text = serde_json::to_string(&kept).unwrap_or_default();
        let new = path.with_extension("new");
        fs::write(&new, text).map_err(LabError::file(&new))?;
        fs::rename(&new, &path).map_err(LabError::file(&path))
    }
}
