//! Statistics of a group, as text.

use std::io::Write as _;

use plimsoll_cgroupfs::CpuStat;
use plimsoll_engine::enforcer::{BatchCounts, HeadroomSample, Sample, SchedulerSample};
use serde::Serialize;

use super::{json, percent};
use crate::error::{CommandError, Result};

/// Microseconds as seconds with three decimals.
fn seconds(usec: u64) -> String {
    format!("{}.{:03} s", usec / 1_000_000, usec / 1000 % 1000)
}

/// CPU time used by a group.
pub fn cpu_time(sample: &Sample) -> String {
    seconds(sample.usage_usec)
}

/// The throttle count with the number of periods.
fn throttling(stat: &CpuStat) -> String {
    let throttled = format!(
        "throttled in {} of {} periods, for {}",
        stat.nr_throttled,
        stat.nr_periods,
        seconds(stat.throttled_usec)
    );
    match stat.nr_bursts {
        0 => throttled,
        bursts => format!("{throttled}; {bursts} bursts, {}", seconds(stat.burst_usec)),
    }
}

/// Counters of a BPF scheduler.
fn scheduled(counts: &BatchCounts) -> String {
    format!(
        "ran {}, waited {}; {} switches, {} preempted, {} overdue",
        seconds(counts.run_usec),
        seconds(counts.wait_usec),
        counts.nr_switches,
        counts.nr_preempted,
        counts.nr_overdue
    )
}

fn scheduler_state(scheduler: &SchedulerSample) -> String {
    let keeper = match scheduler.leader_pid {
        0 => "nobody".into(),
        pid => format!("pid {pid}"),
    };
    let mut text = format!(
        "{}, mode {}, kept by {keeper}; {} tasks rescued, {} run for a lock, {} reloads",
        scheduler.state,
        scheduler.mode,
        scheduler.nr_rescues,
        scheduler.nr_promotions,
        scheduler.nr_reloads
    );
    if let Some(loss) = &scheduler.loss {
        text = format!("{loss}: {text}");
    }
    if let Some(reason) = &scheduler.last_exit {
        text.push_str(&format!("; last exit: {reason}"));
    }
    if let Some(dump) = &scheduler.dump {
        text.push_str(&format!(", dump in {}", dump.display()));
    }
    text
}

/// The demanded headroom; the demand in force if there are several.
fn headroom_asked(headroom: &HeadroomSample) -> String {
    let share = percent(headroom.headroom_ppm.into());
    match (&headroom.in_force, &headroom.overruled) {
        (Some(in_force), Some(less)) => format!("{in_force} asked ({less} too, which is less)"),
        (Some(in_force), None) => format!("{in_force} asked"),
        (None, _) => format!("{share} asked"),
    }
}

/// Statistics of a sample, as names and values.
pub fn statistics_rows(sample: &Sample) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("cpu time", cpu_time(sample)),
        ("processes", sample.processes.to_string()),
    ];
    if let Some(stat) = &sample.quota {
        rows.push(("quota", throttling(stat)));
    }
    if let Some(stat) = &sample.cap {
        rows.push(("cap", throttling(stat)));
    }
    if let Some(tasks) = &sample.per_task {
        rows.push((
            "per-task",
            format!(
                "{} tasks now, {} so far; throttled in {} of {} periods",
                tasks.tasks, tasks.tasks_total, tasks.nr_throttled, tasks.nr_periods
            ),
        ));
    }
    if let Some(soft) = &sample.soft_cap {
        let place = if soft.background {
            "in the background"
        } else {
            "within its cap"
        };
        let rate = percent(soft.rate_ppm);
        rows.push((
            "soft-cap",
            format!("rate {rate}, {place}, {} switches", soft.nr_switches),
        ));
    }
    if let Some(headroom) = &sample.headroom {
        rows.push((
            "headroom",
            format!(
                "{}; batch {}, other {}, allowance {} of all CPUs; short by {} so far",
                headroom_asked(headroom),
                percent(headroom.side_ppm),
                percent(headroom.nonside_ppm),
                percent(headroom.allowance_ppm),
                seconds(headroom.headroom_shortfall_usec),
            ),
        ));
        rows.push((
            "controller",
            format!(
                "{} of CPU time for {} updates, {} quotas written",
                seconds(headroom.controller_usec),
                headroom.nr_updates,
                headroom.nr_writes
            ),
        ));
    }
    if let Some(batch) = &sample.batch {
        rows.push(("scheduled", scheduled(&batch.total)));
    }
    if let Some(scheduler) = &sample.scheduler {
        rows.push(("scheduler", scheduler_state(scheduler)));
    }
    rows.extend(
        sample
            .foreign_changes
            .iter()
            .map(|change| ("changed", change.clone())),
    );
    rows
}

/// Prints the statistics of a run on standard error, because standard output
/// belongs to the command.
pub fn run_statistics(sample: &Sample, as_json: bool) -> Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        statistics: &'a Sample,
    }
    let text = if as_json {
        json::text("plimsoll.run/1", &Document { statistics: sample })?
    } else {
        let rows = statistics_rows(sample);
        let line = |(name, value): &(&str, String)| format!("{name:<12}{value}");
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    writeln!(std::io::stderr().lock(), "{text}").map_err(CommandError::io("standard error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sample: &Sample, name: &str) -> String {
        let rows = statistics_rows(sample);
        let found = rows.into_iter().find(|(row, _)| *row == name);
        found.unwrap().1
    }

    #[test]
    fn overruled_headroom_is_shown() {
        let sample = Sample {
            headroom: Some(HeadroomSample {
                headroom_ppm: 500_000,
                in_force: Some("1cpus".into()),
                overruled: Some("30%".into()),
                ..HeadroomSample::default()
            }),
            ..Sample::default()
        };
        let text = row(&sample, "headroom");
        assert!(
            text.starts_with("1cpus asked (30% too, which is less);"),
            "{text}"
        );
    }

    #[test]
    fn loss_is_shown_first() {
        let sample = Sample {
            scheduler: Some(SchedulerSample {
                state: "down".into(),
                mode: "all".into(),
                loss: Some("no limit of a normal group holds".into()),
                ..SchedulerSample::default()
            }),
            ..Sample::default()
        };
        let text = row(&sample, "scheduler");
        assert!(
            text.starts_with("no limit of a normal group holds: down, mode all, kept by nobody"),
            "{text}"
        );
    }
}
