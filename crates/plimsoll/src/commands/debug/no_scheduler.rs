//! Stand-ins for builds without the scheduler.

use serde::Serialize;

use crate::error::Result;

/// State of the scheduler; has no values.
#[derive(Serialize)]
pub enum Snapshot {}

pub fn take() -> Result<Option<Snapshot>> {
    Ok(None)
}

/// Never called, because there is no value.
pub fn print(snapshot: &Snapshot) -> Result<()> {
    match *snapshot {}
}
