//! A state without an owner: the machine, as the kernel counts it.

use std::fs;
use std::sync::Arc;

use nix::time::{ClockId, clock_gettime};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::state::{Daemon, Machine, State};
use plimsoll_engine::EngineError;
use plimsoll_engine::cgroup::BusyMeter;
use plimsoll_engine::host::nr_cpus_online;

use crate::error::{CommandError, Result};

/// A tick of `/proc/stat`.
const TICK_USEC: u64 = 10_000;

/// Counter of the machine's busy time.
enum Busy {
    /// The kernel's exact counters.
    Exact(Box<BusyMeter>),
    /// `/proc/stat`, in ticks: there is no cgroup hierarchy to read.
    Ticks,
}

pub struct Kernel {
    busy: Option<Busy>,
    busy_usec: u64,
}

/// Busy time of all CPUs in the text of `/proc/stat`, in ticks.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
    let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq)
}

fn monotonic_usec() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_err(|error| CommandError::io("the monotonic clock")(error.into()))?;
    // It counts from the machine's start on and so is never negative.
    Ok(now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000)
}

impl Kernel {
    pub fn new() -> Self {
        Self {
            busy: None,
            busy_usec: 0,
        }
    }

    /// The state now: a machine without groups.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn state(&mut self) -> Result<State> {
        self.count_busy()?;
        Ok(State {
            daemon: Daemon {
                version: env!("CARGO_PKG_VERSION").into(),
                ..Daemon::default()
            },
            machine: Machine {
                at_usec: monotonic_usec()?,
                nr_cpus: nr_cpus_online(),
                busy_usec: self.busy_usec,
                batch_usec: 0,
            },
            ..State::default()
        })
    }

    fn count_busy(&mut self) -> Result<()> {
        let busy = self.busy.get_or_insert_with(|| {
            let hierarchy = Hierarchy::find().map(Arc::new);
            let busy = hierarchy
                .map_err(EngineError::from)
                .and_then(|hierarchy| BusyMeter::start(&hierarchy));
            match busy {
                Ok(meter) => Busy::Exact(Box::new(meter)),
                Err(_) => Busy::Ticks,
            }
        });
        match busy {
            Busy::Exact(meter) => self.busy_usec += meter.busy_ns()? / 1_000,
            Busy::Ticks => {
                let text =
                    fs::read_to_string("/proc/stat").map_err(CommandError::io("/proc/stat"))?;
                self.busy_usec = busy_ticks(&text).ok_or(CommandError::NoCpuLine)? * TICK_USEC;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_ticks_are_neither_idle_nor_waiting() {
        let text = "cpu  10 2 3 1000 50 4 5 6 7 8\ncpu0 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(text), Some(24));
        assert_eq!(busy_ticks("cpu0 1 2 3\n"), None);
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
    }

    #[test]
    fn machine_is_shown_without_an_owner() {
        let mut kernel = Kernel::new();
        let first = kernel.state().unwrap();
        let second = kernel.state().unwrap();
        assert!(first.groups.is_empty() && first.machine.nr_cpus > 0);
        assert!(second.machine.at_usec >= first.machine.at_usec);
        assert!(second.machine.busy_usec >= first.machine.busy_usec);
    }
}
