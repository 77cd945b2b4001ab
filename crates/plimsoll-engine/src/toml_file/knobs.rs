//! The knobs of a group: the words and forms of the command line.

use crate::knobs::{Burst, CpuMax, Knobs, Quota};

use super::error::FileError;
use super::table::Table;

/// Their keys.
pub const KEYS: [&str; 14] = [
    "class",
    "nice",
    "weight",
    "quota",
    "burst",
    "cpu-max",
    "cap",
    "soft-cap",
    "half-life",
    "per-task",
    "headroom",
    "tolerance",
    "cpu-limit",
    "host-tuning",
];

/// Reads and checks them.
///
/// # Errors
/// Points at the first that is not allowed, or does not go with another.
pub fn read(group: &Table) -> Result<Knobs, FileError> {
    let (quota, burst) = bandwidth(group)?;
    let knobs = Knobs {
        class: group.parsed("class")?,
        nice: group.parsed("nice")?,
        weight: group.parsed("weight")?,
        quota,
        burst,
        cap: group.parsed("cap")?,
        soft_cap: group.parsed("soft-cap")?,
        half_life: group.parsed("half-life")?,
        per_task: group.flag("per-task")?,
        headroom: group.parsed("headroom")?,
        tolerance: group.parsed("tolerance")?,
        cpu_limit: group.parsed("cpu-limit")?,
        host_tuning: group.flag("host-tuning")?,
    };
    match knobs.check() {
        Ok(()) => Ok(knobs),
        Err(error) => Err(group.error(error.knob, error.to_string())),
    }
}

fn bandwidth(group: &Table) -> Result<(Option<Quota>, Option<Burst>), FileError> {
    let Some(line) = group.parsed::<CpuMax>("cpu-max")? else {
        return Ok((group.parsed("quota")?, group.parsed("burst")?));
    };
    for other in ["quota", "burst"] {
        if let Some(entry) = group.find(other) {
            let allowed = "cpu-max alone, or quota and burst";
            return Err(group.refused(entry, "stands beside cpu-max", allowed));
        }
    }
    let (quota, burst) = line
        .complete(None)
        .map_err(|error| group.error("cpu-max", error.to_string()))?;
    Ok((Some(quota), burst))
}
