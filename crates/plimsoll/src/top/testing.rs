//! States for the unit tests.

use plimsoll_cgroupfs::CpuStat;
use plimsoll_daemon::state::{Daemon, GroupState, KnobOrigin, MachineState, State};
use plimsoll_engine::sample::{BatchSample, Sample};

/// A group with the given usage, with a quota and a BPF scheduler.
pub fn group(name: &str, usage_usec: u64) -> GroupState {
    GroupState {
        name: name.into(),
        group: name.into(),
        origin: KnobOrigin::File,
        cgroup: format!("/tests/{name}"),
        statistics: Some(Sample {
            usage_usec,
            processes: 1,
            quota: Some(CpuStat::default()),
            batch: Some(BatchSample::default()),
            ..Sample::default()
        }),
        ..GroupState::default()
    }
}

/// A state of two CPUs, ten seconds after the start of the clock.
pub fn state(groups: &[GroupState]) -> State {
    State {
        daemon: Daemon {
            pid: 4711,
            uptime_usec: 11_520_000_000,
            ..Daemon::default()
        },
        machine: MachineState {
            at_usec: 10_000_000,
            nr_cpus: 2,
            busy_usec: 5_000_000,
            batch_usec: 1_000_000,
        },
        groups: groups.to_vec(),
        ..State::default()
    }
}
