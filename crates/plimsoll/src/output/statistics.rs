//! Statistics of a group, as text.

use std::collections::BTreeMap;
use std::io::Write as _;

use plimsoll_cgroupfs::CpuStat;
use plimsoll_engine::sample::{
    BatchCounts, HeadroomSample, Sample, SchedulerSample, TaskRate, TaskRates,
};

use super::{borderless, facts, fitted, json, percent};
use crate::error::{CommandError, Result};

/// Microseconds as seconds with three decimals.
fn seconds(usec: u64) -> String {
    format!("{}.{:03} s", usec / 1_000_000, usec / 1000 % 1000)
}

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
    let all = format!(
        "ran {}, waited {}; {} switches, {} preempted, {} overdue",
        seconds(counts.run_usec),
        seconds(counts.wait_usec),
        counts.nr_switches,
        counts.nr_preempted,
        counts.nr_overdue
    );
    match counts.nr_holders {
        0 => all,
        holders => format!("{all}, {holders} for a lock"),
    }
}

fn scheduler_state(scheduler: &SchedulerSample) -> String {
    let mut text = format!(
        "{}, owner pid {}; {} reloads",
        scheduler.state, scheduler.owner_pid, scheduler.nr_reloads
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
        (Some(in_force), Some(less)) => format!("{in_force} asked (smaller demand: {less})"),
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
    if sample.real_time > 0 {
        let tasks = format!(
            "{} tasks, which no limit of the group holds",
            sample.real_time
        );
        rows.push(("real-time", tasks));
    }
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

fn place(task: &TaskRate) -> &'static str {
    if task.background { "background" } else { "-" }
}

/// Usage rates of tasks, the fastest first, and the number of omitted ones.
pub(super) fn task_table(rates: &TaskRates, width: Option<u16>) -> String {
    let mut table = borderless(["TASK", "COMMAND", "RATE", "TIER"]);
    for task in &rates.tasks {
        let rate = percent(task.rate_ppm);
        table.add_row([&task.tid.to_string(), &task.command, &rate, place(task)]);
    }
    let mut text = fitted(table, width);
    let shown = rates.tasks.len() as u64;
    if shown < rates.nr_tasks {
        text += &format!("\n{shown} of {} tasks", rates.nr_tasks);
    }
    text
}

/// Prints the statistics of a run on standard error, because standard output
/// belongs to the command.
pub fn run_statistics(sample: &Sample, as_json: bool) -> Result<()> {
    let text = if as_json {
        json::text("plimsoll.run/1", &BTreeMap::from([("statistics", sample)]))?
    } else {
        facts(statistics_rows(sample)).trim_fmt()
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
    fn tasks_are_listed_with_their_rates_and_how_many_are_missing() {
        let task = |tid, rate_ppm, background| TaskRate {
            tid,
            command: "burn".into(),
            rate_ppm,
            background,
        };
        let rates = TaskRates::new(vec![task(7, 125_000, false), task(8, 990_000, true)], 9);
        let table = task_table(&rates, None);
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["TASK", "COMMAND", "RATE", "TIER"]);
        assert_eq!(lines[1], ["8", "burn", "99%", "background"]);
        assert_eq!(lines[2], ["7", "burn", "12.5%", "-"]);
        assert_eq!(lines[3].join(" "), "2 of 9 tasks");
        let all = TaskRates::new(vec![task(7, 0, false)], 1);
        assert_eq!(task_table(&all, None).lines().count(), 2);
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
            text.starts_with("1cpus asked (smaller demand: 30%);"),
            "{text}"
        );
    }

    #[test]
    fn loss_is_shown_first() {
        let sample = Sample {
            scheduler: Some(SchedulerSample {
                state: "down".into(),
                owner_pid: 7,
                loss: Some("no limit holds".into()),
                ..SchedulerSample::default()
            }),
            ..Sample::default()
        };
        let text = row(&sample, "scheduler");
        assert!(
            text.starts_with("no limit holds: down, owner pid 7"),
            "{text}"
        );
    }
}
