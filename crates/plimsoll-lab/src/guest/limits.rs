//! Quotas, bursts and caps on the workload itself.

use std::thread;

use super::counters::round;
use super::load::{latencies, number, plimsoll};
use super::{LAB, PLIMSOLL};
use crate::cell::Cell;
use crate::error::{LabError, Result};
use crate::policy::Policy;
use crate::results::Figures;
use crate::workload::Allowance;

/// CPU time that the tasks of the caps table need, in seconds.
pub const NEEDS: [&str; 7] = ["0.01", "0.05", "0.1", "0.5", "1", "5", "10"];
/// Caps of the caps table, in percent.
pub const CAPS: [u32; 2] = [90, 9];
/// Processes and CPU time of the source's clean-up of a source tree.
const STORM: &str = "load storm --processes 2000 --cpu-total 1.9s --json";

fn enforcer(cell: &Cell) -> &'static str {
    match cell.policy {
        Policy::SchedExt(_) => "sched-ext",
        _ => "cgroup",
    }
}

/// Runs a workload of a program under knobs.
fn under(cell: &Cell, knobs: &str, program: &str, load: &str) -> Result<serde_json::Value> {
    let enforcer = enforcer(cell);
    plimsoll(
        None,
        &format!("run --enforcer {enforcer} {knobs} -- {program} {load}"),
    )
}

/// Bursts of 1.5 quotas, half a quota on average: the source's experiment on two CPUs.
pub fn burst(cell: &Cell, allowance: Allowance) -> Result<Figures> {
    let load = "load service --burst-size 24 --burst-every 310ms --service const:1ms \
                --duration 12s --warmup 1s --deadline 50ms --seed 1 --json";
    let said = match allowance {
        Allowance::All => plimsoll(None, load)?,
        Allowance::Quota => under(cell, "--quota 16ms/100ms", PLIMSOLL, load)?,
        Allowance::QuotaAndBurst => under(cell, "--quota 16ms/100ms --burst 16ms", PLIMSOLL, load)?,
    };
    latencies(&said)
}

/// Measures the rate of single tasks, as many at a time as fit on a CPU.
pub fn caps(cell: &Cell) -> Result<Figures> {
    let mut figures = Figures::new();
    for cap in CAPS {
        for needs in NEEDS.chunks(100 / cap as usize) {
            figures.extend(at_once(cell, cap, needs)?);
        }
    }
    Ok(figures)
}

/// Runs a task for each need, under a cap of its own.
fn at_once(cell: &Cell, cap: u32, needs: &[&str]) -> Result<Figures> {
    thread::scope(|scope| {
        let run = |need: &&str| {
            let (name, load) = (
                format!("cap_{cap}_need_{need}_s"),
                format!("load need {need}s"),
            );
            scope.spawn(move || {
                let said = under(cell, &format!("--cap {cap}%"), LAB, &load)?;
                Ok((name, round(number(&said["rate"])?, 1e5)))
            })
        };
        let running: Vec<_> = needs.iter().map(run).collect();
        let ended = running.into_iter().map(|task| {
            task.join()
                .unwrap_or_else(|_| Err(LabError::Guest("a thread died".to_owned())))
        });
        ended.collect()
    })
}

/// Measures elapsed and CPU time of 2,000 processes, without a cap and under several.
pub fn storm(cell: &Cell) -> Result<Figures> {
    let mut figures = Figures::new();
    let mut put = |name: &str, said: serde_json::Value| -> Result<()> {
        let elapsed = number(&said["elapsed_seconds"])?;
        figures.insert(format!("{name}_seconds"), round(elapsed, 1e4));
        let used = number(&said["cpu_seconds"])?;
        figures.insert(format!("{name}_cpu_seconds"), round(used, 1e4));
        Ok(())
    };
    put("uncapped", plimsoll(None, STORM)?)?;
    for cap in [90, 10] {
        let name = format!("tree_cap_{cap}");
        put(
            &name,
            under(cell, &format!("--cap {cap}%"), PLIMSOLL, STORM)?,
        )?;
    }
    let per_task = "--cap 90% --per-task";
    put("task_cap_90", under(cell, per_task, PLIMSOLL, STORM)?)?;
    Ok(figures)
}
