//! Guest part: sets up a policy, runs a workload under it, and prints the figures.

mod batch;
mod counters;
mod group;
mod load;
mod programs;
mod switches;
mod text;
mod traced;
mod web;

pub use programs::{FOLDER, LAB, PLIMSOLL};
pub use switches::pipe_back_and_forth;
pub use web::SCRIPT;

use std::fs;
use std::thread;

use crate::cell::Cell;
use crate::error::{LabError, Result};
use crate::policy::Policy;
use crate::results::{CellOutcome, Figures};
use crate::workload::Workload;
use batch::{GuestBatch, WARM_UP};
use counters::Window;
use group::GuestGroup;

/// Prefix of the line that carries an outcome.
pub const RESULT: &str = "result ";
/// Measures one cell on this kernel and prints its outcome.
pub fn run(cell: &Cell) -> Result<()> {
    let figures = measure(cell)?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let outcome = CellOutcome {
        cell: cell.to_string(),
        kernel: release.trim().to_owned(),
        figures,
    };
    let text = serde_json::to_string(&outcome).map_err(|e| LabError::Guest(e.to_string()))?;
    println!("{RESULT}{text}");
    Ok(())
}

fn measure(cell: &Cell) -> Result<Figures> {
    match cell.workload {
        Workload::Pipe | Workload::Hackbench => switches::measure(cell),
        Workload::Web => web::measure(cell),
        _ => beside_batch(cell),
    }
}

/// A service in a cgroup of its own, as under systemd, and batch work beside it.
fn beside_batch(cell: &Cell) -> Result<Figures> {
    let service = GuestGroup::make("service")?.real_time(cell.policy == Policy::RealTime);
    let mut batch = GuestBatch::start(cell.policy, cell.cpus)?;
    thread::sleep(WARM_UP);
    let window = Window::open(&batch)?;
    let mut figures = match cell.workload {
        workload @ Workload::Seeds(_) => load::seeds(&service, workload, cell.cpus)?,
        workload => load::service(&service, workload, cell.cpus)?,
    };
    figures.extend(window.close(&batch)?);
    if !matches!(cell.workload, Workload::Seeds(_)) {
        figures.extend(traced::inversions(&service, cell, &batch)?);
    }
    batch.end()?;
    Ok(figures)
}
