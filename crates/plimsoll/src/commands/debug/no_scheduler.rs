//! A build without a scheduler.

use serde::Serialize;

use crate::error::Result;

/// There is never one.
#[derive(Serialize)]
pub enum Snapshot {}

/// None.
pub fn take() -> Result<Option<Snapshot>> {
    Ok(None)
}

/// Nobody has one to print.
pub fn print(snapshot: &Snapshot) -> Result<()> {
    match *snapshot {}
}
