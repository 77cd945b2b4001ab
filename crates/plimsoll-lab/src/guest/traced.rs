//! Counts picks of batch work while normal work is runnable on the same CPU.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::batch::GuestBatch;
use super::counters::round;
use super::group::GuestGroup;
use super::load;
use crate::cell::Cell;
use crate::error::{LabError, Result};
use crate::inversions;
use crate::results::Figures;

const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: [&str; 3] = ["sched_switch", "sched_wakeup", "sched_migrate_task"];
/// Buffer size of each CPU: about 100 bytes for each event of two seconds.
const BUFFER_KIB: &str = "16384";
/// Prefixes of the names of threads of burners and of services.
const BATCH: &str = "load-burner";
const SERVICE: &str = "load-worker";
/// Traced time; latencies are measured without tracing.
const SECONDS: u32 = 2;

/// Runs the service again, traced, and counts the inversions.
pub fn inversions(service: &GuestGroup, cell: &Cell, batch: &GuestBatch) -> Result<Figures> {
    if !batch.is_there() {
        return Ok(Figures::new());
    }
    set("buffer_size_kb", BUFFER_KIB)?;
    for event in EVENTS {
        set(&format!("events/sched/{event}/enable"), "1")?;
    }
    set("tracing_on", "1")?;
    load::serve(service, cell.workload, cell.cpus, SECONDS, 1)?;
    set("tracing_on", "0")?;
    let path = Path::new(TRACING).join("trace");
    let trace = fs::read_to_string(&path).map_err(LabError::file(path))?;
    for event in EVENTS {
        set(&format!("events/sched/{event}/enable"), "0")?;
    }
    let seen = inversions::count(&trace, BATCH, SERVICE);
    if seen.lost_events > 0 {
        let lost = seen.lost_events;
        return Err(LabError::Guest(format!("the trace lost {lost} events")));
    }
    let seconds = f64::from(SECONDS);
    let ms = |time: Duration| round(time.as_secs_f64() * 1e3, 1e3);
    Ok(Figures::from([
        (
            "inversions_per_second".to_owned(),
            seen.picks as f64 / seconds,
        ),
        (
            "inversion_ms_per_second".to_owned(),
            ms(seen.total) / seconds,
        ),
        ("inversion_ms_longest".to_owned(), ms(seen.longest)),
    ]))
}

fn set(file: &str, value: &str) -> Result<()> {
    let path = Path::new(TRACING).join(file);
    fs::write(&path, value).map_err(LabError::file(path))
}
