//! Figures of cells, as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::error::Result;
use crate::lines_file::{self, Stored};

/// Named numbers. Names carry their unit.
pub type Figures = BTreeMap<String, f64>;

/// Result of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellOutcome {
    pub cell: String,
    /// The kernel's own version.
    pub kernel: String,
    pub figures: Figures,
}

impl Stored for CellOutcome {
    const SCHEMA: &'static str = "plimsoll.lab/1";
    const KEY: &'static str = "cells";

    fn cell(&self) -> &str {
        &self.cell
    }
}

/// All cells of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    pub cells: Vec<CellOutcome>,
}

impl Results {
    pub fn read(path: &Path) -> Result<Self> {
        let cells = lines_file::read(path)?;
        Ok(Self { cells })
    }

    #[must_use]
    pub fn of(&self, cell: &Cell) -> Option<&CellOutcome> {
        let name = cell.to_string();
        self.cells.iter().find(|outcome| outcome.cell == name)
    }

    #[must_use]
    pub fn figure(&self, cell: &Cell, name: &str) -> Option<f64> {
        self.of(cell)?.figures.get(name).copied()
    }
}
