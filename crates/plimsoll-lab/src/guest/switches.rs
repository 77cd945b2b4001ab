//! Cost of a switch in instructions: on one CPU in virtual time a nanosecond is one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _, pipe};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::batch::{self, GuestBatch};
use super::counters::round;
use super::programs::{LAB, PLIMSOLL};
use super::text::text;
use crate::cell::Cell;
use crate::error::{LabError, Result};
use crate::guests::said_by;
use crate::policy::Policy;
use crate::results::Figures;
use crate::workload::Workload;

/// Round trips through the pipes, two switches each.
const ROUND_TRIPS: u32 = 20_000;
/// Round trips before the measurement, to fill caches and create counters.
const WARM_UP: u32 = 2_000;
/// Messages of each sender.
const LOOPS: u32 = 100;

/// Measures `pipe` or `hackbench` under a scheduler.
pub fn measure(cell: &Cell) -> Result<Figures> {
    let mut peer = GuestBatch::scheduler_alone(cell.policy)?;
    let mut sleeper = load_ours(cell.policy)?;
    let words = benchmark(cell);
    let (said, switches) = run(&words)?;
    let mut figures = figures(cell, &said, switches)?;
    if let Some(sleeper) = &mut sleeper {
        figures.extend(callbacks(&words)?);
        sleeper.kill().map_err(LabError::command("the sleeper"))?;
    }
    peer.end()?;
    Ok(figures)
}

/// Starts a sleeping batch group if the policy needs it, and with it Plimsoll's scheduler or the
/// guard of the fair class.
fn load_ours(policy: Policy) -> Result<Option<Child>> {
    Ok(match policy {
        Policy::Unmanaged | Policy::Managed => Some(batch::load_ours()?),
        Policy::Stock(_) | Policy::Tuned => Some(batch::guard(policy)?),
        _ => None,
    })
}

/// The command, inside a group if the policy has one.
fn benchmark(cell: &Cell) -> Vec<String> {
    let group = match cell.policy {
        Policy::Managed => format!("{PLIMSOLL} run --enforcer sched-ext --class batch -- "),
        _ => String::new(),
    };
    let command = match cell.workload {
        Workload::Pipe => format!("{LAB} pipe"),
        _ => format!("/lab/hackbench --groups 2 --loops {LOOPS}"),
    };
    let words = format!("{group}{command}");
    words.split(' ').map(str::to_owned).collect()
}

/// Runs a command; returns its output and the number of context switches meanwhile.
fn run(words: &[String]) -> Result<(String, u64)> {
    let before = switches()?;
    let mut command = Command::new(&words[0]);
    let command = command.args(&words[1..]).stdin(Stdio::null());
    let said = said_by(command, "the benchmark")?;
    Ok((said, switches()? - before))
}

/// Runs the command again, and measures calls and instructions of the scheduler's callbacks for
/// each switch. The counters themselves cost some instructions.
fn callbacks(words: &[String]) -> Result<Figures> {
    let stats = Path::new("/proc/sys/kernel/bpf_stats_enabled");
    fs::write(stats, "1").map_err(LabError::file(stats))?;
    let before = programs()?;
    let (_, switches) = run(words)?;
    let after = programs()?;
    fs::write(stats, "0").map_err(LabError::file(stats))?;
    let mut figures = Figures::new();
    for (name, (calls, ns)) in after {
        let (calls_before, ns_before) = before.get(&name).copied().unwrap_or_default();
        let each = |count: u64| count as f64 / switches as f64;
        let (calls, ns) = (calls - calls_before, ns - ns_before);
        // Rare callbacks are not part of a switch.
        if calls * 20 > switches {
            figures.insert(format!("callback_{name}_calls"), round(each(calls), 1e3));
            figures.insert(format!("callback_{name}_instructions"), each(ns).round());
        }
    }
    Ok(figures)
}

/// Calls and run time of the scheduler's programs, by name.
fn programs() -> Result<BTreeMap<String, (u64, u64)>> {
    let mut command = Command::new("/lab/bpftool");
    let said = said_by(command.args(["--json", "prog", "show"]), "bpftool")?;
    let said: Value = serde_json::from_str(&said)
        .map_err(|error| LabError::Guest(format!("bpftool: {error}")))?;
    let all = said.as_array().into_iter().flatten();
    let named = all.filter_map(|program| {
        let name = program["name"].as_str()?.strip_prefix("plimsoll_")?;
        let number = |name: &str| program[name].as_u64().unwrap_or(0);
        Some((name.to_owned(), (number("run_cnt"), number("run_time_ns"))))
    });
    Ok(named.collect())
}

fn figures(cell: &Cell, said: &str, switches: u64) -> Result<Figures> {
    let bad = || LabError::Guest(format!("the benchmark says: {said}"));
    let mut figures = Figures::new();
    if cell.workload == Workload::Pipe {
        let ns: f64 = said.trim().parse().map_err(|_| bad())?;
        let each = ns / f64::from(2 * ROUND_TRIPS);
        figures.insert("instructions_per_switch".to_owned(), each.round());
        return Ok(figures);
    }
    let line = said.lines().find_map(|line| line.strip_prefix("Time: "));
    let seconds: f64 = line
        .and_then(|word| word.trim().parse().ok())
        .ok_or_else(bad)?;
    // 20 senders and 20 receivers in each of the groups.
    let messages = f64::from(2 * 20 * 20 * LOOPS);
    figures.insert(
        "instructions_per_message".to_owned(),
        (seconds * 1e9 / messages).round(),
    );
    figures.insert(
        "switches_per_message".to_owned(),
        round(switches as f64 / messages, 1e3),
    );
    Ok(figures)
}

/// Context switches since boot.
fn switches() -> Result<u64> {
    let text = text("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("ctxt "));
    line.and_then(|word| word.parse().ok())
        .ok_or_else(|| LabError::Guest("/proc/stat has no ctxt".to_owned()))
}

/// Exchanges bytes with another process through pipes, and prints the elapsed nanoseconds.
pub fn pipe_back_and_forth() -> Result<()> {
    let (mut here, mut there_out) = pipe().map_err(LabError::file("pipe"))?;
    let (mut there, mut here_out) = pipe().map_err(LabError::file("pipe"))?;
    let answer = std::thread::spawn(move || -> std::io::Result<()> {
        let mut byte = [0];
        for _ in 0..WARM_UP + ROUND_TRIPS {
            there.read_exact(&mut byte)?;
            there_out.write_all(&byte)?;
        }
        Ok(())
    });
    let mut byte = [0];
    let mut begun = Instant::now();
    for round in 0..WARM_UP + ROUND_TRIPS {
        if round == WARM_UP {
            begun = Instant::now();
        }
        here_out.write_all(&byte).map_err(LabError::file("pipe"))?;
        here.read_exact(&mut byte).map_err(LabError::file("pipe"))?;
    }
    println!("{}", begun.elapsed().as_nanos());
    match answer.join() {
        Ok(result) => result.map_err(LabError::file("pipe")),
        Err(_) => Err(LabError::Guest("the other thread died".to_owned())),
    }
}
