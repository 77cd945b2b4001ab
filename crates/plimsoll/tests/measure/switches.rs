//! Run time of tasks between any two moments, to the microsecond, from the kernel's trace of
//! switches, because `cpu.stat` lacks the time since the last tick of 4 ms.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::time::{ClockId, clock_gettime};

use crate::common::nr_cpus;

const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// Buffer size of each CPU: about 100 bytes for each switch.
const BUFFER_KIB: &str = "4096";

/// The clock of a trace, in microseconds.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1000
}

/// A running trace; dropping it stops it.
pub struct Trace {
    instance: PathBuf,
}

impl Trace {
    pub fn start() -> Self {
        let instance =
            Path::new(INSTANCES).join(format!("plimsoll-measure-{}", std::process::id()));
        fs::create_dir(&instance).unwrap();
        let trace = Self { instance };
        trace.set("trace_clock", "mono");
        trace.set("buffer_size_kb", BUFFER_KIB);
        trace.set("events/sched/sched_switch/enable", "1");
        trace
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.instance.join(file), value).unwrap();
    }

    pub fn stop(self) -> Switches {
        self.set("tracing_on", "0");
        Switches::parse(&fs::read_to_string(self.instance.join("trace")).unwrap())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
    }
}

/// A switch: from then on a CPU runs another task.
#[derive(Debug, Clone, Copy)]
struct Switch {
    at_us: u64,
    previous: i32,
    next: i32,
}

/// The switches of each CPU, in order.
#[derive(Debug)]
pub struct Switches(BTreeMap<u32, Vec<Switch>>);

impl Switches {
    fn parse(text: &str) -> Self {
        assert!(!text.contains("LOST"), "the trace lost events");
        let mut cpus: BTreeMap<u32, Vec<Switch>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (cpu, switch) = parse_line(line).unwrap_or_else(|| panic!("unknown line: {line}"));
            // The task before the first one has run for longer than the trace.
            let first = || {
                vec![Switch {
                    at_us: 0,
                    next: switch.previous,
                    ..switch
                }]
            };
            cpus.entry(cpu).or_insert_with(first).push(switch);
        }
        Self(cpus)
    }

    /// The run time of tasks from one moment to another, on all CPUs, in microseconds.
    pub fn ran_us(&self, tids: &[i32], from_us: u64, to_us: u64) -> u64 {
        let of_cpu = |switches: &Vec<Switch>| {
            let ends = switches[1..].iter().map(|switch| switch.at_us);
            let turns = switches.iter().zip(ends.chain([u64::MAX]));
            turns
                .filter(|(switch, _)| tids.contains(&switch.next))
                .map(|(switch, end)| end.min(to_us).saturating_sub(switch.at_us.max(from_us)))
                .sum::<u64>()
        };
        assert_eq!(self.0.len(), nr_cpus(), "a CPU has no switch in the trace");
        self.0.values().map(of_cpu).sum()
    }

    /// Maximum run time of tasks in any window of a given length that begins with a run of theirs,
    /// between two moments, in microseconds.
    pub fn most_us(&self, tids: &[i32], window_us: u64, from_us: u64, to_us: u64) -> u64 {
        let turns = self.0.values().flatten();
        let turns = turns.filter(|switch| tids.contains(&switch.next) && switch.at_us < to_us);
        let begins = turns.map(|switch| switch.at_us.max(from_us));
        let most = begins.map(|begin_us| {
            let end_us = to_us.min(begin_us + window_us);
            self.ran_us(tids, begin_us, end_us)
        });
        most.max().unwrap_or(0)
    }
}

/// `load-burner-81  [001] d..2.  3.456789: sched_switch: … prev_pid=81 … ==> … next_pid=0 …`.
fn parse_line(line: &str) -> Option<(u32, Switch)> {
    let (before, event) = line.split_once(": sched_switch: ")?;
    let (task, at) = before.rsplit_once(' ')?;
    let (seconds, micros) = at.split_once('.')?;
    let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let cpu = task.rsplit_once('[')?.1.split_once(']')?.0.parse().ok()?;
    let pid = |name: &str| {
        let (_, after) = event.rsplit_once(name)?;
        after.split_whitespace().next()?.parse().ok()
    };
    let (previous, next) = (pid("prev_pid=")?, pid("next_pid=")?);
    let switch = Switch {
        at_us,
        previous,
        next,
    };
    Some((cpu, switch))
}
