//! `plimsoll debug --trace`: prints charges and refills of a group's quota as they happen.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::{CpuGroup, Hierarchy};
use plimsoll_engine::EngineError;
use plimsoll_load::Stop;
use plimsoll_scx::trace::{self, Line};
use serde::Serialize;

use crate::error::{CommandError, Result};
use crate::output;
use crate::owner::Owner;

/// First line, with the schema of all lines.
#[derive(Serialize)]
struct First {
    schema: &'static str,
    #[serde(flatten)]
    line: Line,
}

/// Prints a line of JSON for each change of the group's bandwidth until `duration` is over, SIGINT
/// or SIGTERM arrives, or the reader has gone.
pub fn run(group: &str, duration: Duration) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let cgroup = cgroup_of(group)?.cpu_file("");
    let begun = Instant::now();
    let mut is_read = Ok(true);
    let recorded = trace::record(
        &cgroup,
        || begun.elapsed() < duration && !stop.is_set(),
        |line| {
            is_read = print(line);
            matches!(is_read, Ok(true))
        },
    );
    recorded?;
    is_read?;
    Ok(ExitCode::SUCCESS)
}

fn cgroup_of(group: &str) -> Result<CpuGroup> {
    let no_target = || EngineError::NoTarget {
        target: group.to_owned(),
        what: "group",
    };
    let state = match Owner::of_host()? {
        Some(mut owner) => owner.group(group)?,
        None => None,
    };
    let state = state.ok_or_else(no_target)?;
    let hierarchy = Arc::new(Hierarchy::find()?);
    let path = hierarchy.resolve(&state.cgroup)?;
    Ok(CpuGroup::at(&hierarchy, path))
}

/// Returns whether there still is a reader.
fn print(line: Line) -> Result<bool> {
    let text = match line {
        Line::Begin(_) => serde_json::to_string(&First {
            schema: "plimsoll.trace/1",
            line,
        }),
        _ => serde_json::to_string(&line),
    };
    let text = text.map_err(CommandError::Json)?;
    output::print_while_read(&text)
}
