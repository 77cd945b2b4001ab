//! A web server and its client, and a video encoder as batch work: `bench/webserver-guest`.

use std::process::Command;

use serde_json::Value;

use super::batch::{self, GuestBatch};
use super::counters::round;
use super::load::number;
use crate::cell::Cell;
use crate::error::{LabError, Result};
use crate::guests::said_by;
use crate::policy::Policy;
use crate::results::Figures;

/// Path of the script in the guest.
pub const SCRIPT: &str = "/lab/webserver-guest";

/// Runs the script with the cell's policy for the encoder.
pub fn measure(cell: &Cell) -> Result<Figures> {
    let mut scheduler = GuestBatch::scheduler_alone(cell.policy)?;
    let mut command = Command::new(SCRIPT);
    if cell.policy == Policy::Alone {
        command.arg("--alone");
    } else {
        if cell.policy == Policy::RealTime {
            command.arg("--real-time");
        }
        command.arg("--");
        command.args(batch::prefix(cell.policy, cell.cpus)?);
    }
    let said = said_by(&mut command, SCRIPT)?;
    let line = said.lines().find(|line| line.starts_with('{'));
    scheduler.end()?;
    figures(line.unwrap_or_default())
}

fn figures(line: &str) -> Result<Figures> {
    let said: Value = serde_json::from_str(line)
        .map_err(|error| LabError::Guest(format!("{SCRIPT}: {error}")))?;
    let mut figures = Figures::new();
    for name in ["p50_us", "p99_us", "p999_us", "max_us"] {
        figures.insert(name.to_owned(), round(number(&said[name])?, 1e3));
    }
    for name in ["requests", "failures"] {
        figures.insert(name.to_owned(), number(&said[name])?);
    }
    // The server's times are those of the warm-up, too.
    let nr_requests = number(&said["rate"])? * number(&said["seconds"])?;
    for (name, of_all) in [
        ("server_ran_us", "server_ran_ns"),
        ("server_waited_us", "server_waited_ns"),
    ] {
        let each_us = number(&said[of_all])? / 1e3 / nr_requests;
        figures.insert(name.to_owned(), round(each_us, 10.0));
    }
    if let Some(frames) = said["frames"].as_f64() {
        let rate = frames / number(&said["seconds"])?;
        figures.insert("batch_units_per_second".to_owned(), round(rate, 10.0));
    }
    Ok(figures)
}
