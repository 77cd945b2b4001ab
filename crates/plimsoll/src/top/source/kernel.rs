//! A state without an owner: the machine, as the kernel counts it.

use std::sync::Arc;

use nix::time::{ClockId, clock_gettime};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::state::{Daemon, MachineState, State};
use plimsoll_engine::cgroup::BusyMeter;
use plimsoll_engine::host::nr_cpus_online;

use crate::error::{CommandError, Result};

pub struct KernelSource {
    /// Meter of the machine's busy time; `None`: it was not read yet.
    busy: Option<BusyMeter>,
    busy_usec: u64,
}

fn monotonic_usec() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_err(|error| CommandError::io("the monotonic clock")(error.into()))?;
    // It counts from the machine's start on and so is never negative.
    Ok(now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000)
}

impl KernelSource {
    pub fn new() -> Self {
        Self {
            busy: None,
            busy_usec: 0,
        }
    }

    /// The state now: a machine without groups.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read, such as without a cgroup hierarchy.
    pub fn state(&mut self) -> Result<State> {
        self.count_busy()?;
        Ok(State {
            daemon: Daemon {
                version: env!("CARGO_PKG_VERSION").into(),
                ..Daemon::default()
            },
            machine: MachineState {
                at_usec: monotonic_usec()?,
                nr_cpus: nr_cpus_online(),
                busy_usec: self.busy_usec,
                batch_usec: 0,
            },
            ..State::default()
        })
    }

    fn count_busy(&mut self) -> Result<()> {
        let meter = match &mut self.busy {
            Some(meter) => meter,
            None => {
                let hierarchy = Arc::new(Hierarchy::find()?);
                self.busy.insert(BusyMeter::start(&hierarchy)?)
            }
        };
        self.busy_usec += meter.busy_ns()? / 1_000;
        Ok(())
    }
}
