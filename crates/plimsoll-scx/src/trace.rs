//! A trace of one group's bandwidth, as the scheduler accounts for it: for `plimsoll debug`.
//!
//! The scheduler writes a line for each charge, refill and CPU that may run again, while the reader
//! renews its request: after a reader is killed, the trace ends within a second.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use serde::{Deserialize, Serialize};

use crate::SchedExtError;
use crate::bpf_intf::{
    plimsoll_group, plimsoll_group_flags_PLIMSOLL_QUOTA as QUOTA,
    plimsoll_limits_PLIMSOLL_SLOT_NONE as SLOT_NONE, plimsoll_trace,
    plimsoll_trace_kind_PLIMSOLL_CHARGED as CHARGED,
    plimsoll_trace_kind_PLIMSOLL_REFILLED as REFILLED,
};
use crate::objects::{Objects, value_of};
use crate::params::cgroup_id;
use crate::pins::PIN_FOLDER;
use crate::sample::monotonic_ns;

/// Time for which the scheduler traces without a renewed request.
const LEASE_NS: u64 = 1_000_000_000;
/// Interval of reads: the buffer holds thousands of lines.
const POLL: Duration = Duration::from_millis(20);

/// A line of the trace. Times are in nanoseconds, points in time of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The group before the first change that is traced.
    Begin(TraceState),
    /// A run was charged to a CPU, or the CPU was throttled.
    Charged(TraceChange),
    /// The timer found that a boundary had passed.
    Refilled(TraceChange),
    /// A CPU that was throttled may run again.
    Served(TraceChange),
    /// The group after the last change.
    End(TraceState),
}

/// A group's bandwidth at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct TraceState {
    /// Sequence number of the last change before; each further change adds one. Missing numbers
    /// were lost because they were not read in time.
    pub sequence: u64,
    /// Number of possible CPUs.
    pub nr_cpus: u32,
    pub quota_ns: u64,
    pub period_ns: u64,
    pub burst_ns: u64,
    /// Runtime that a CPU takes from the pool at a time.
    pub slice_ns: u64,
    /// Runtime left in the pool.
    pub pool_ns: u64,
    /// Start of the present period.
    pub boundary_ns: u64,
    /// Usage of the present period that is booked so far.
    pub period_usage_ns: u64,
    pub nr_throttled_cpus: u32,
    /// Periods so far in which the group was active.
    pub nr_periods: u64,
    /// Periods of these that ended throttled.
    pub nr_throttled: u64,
    /// Time throttled, summed over CPUs; that of a CPU counts once it may run again.
    pub throttled_ns: u64,
    /// Periods whose usage exceeded the quota.
    pub nr_bursts: u64,
    /// Usage beyond the quota.
    pub exceeded_ns: u64,
}

/// One change of a group's bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct TraceChange {
    /// Sequence number. Lines of two CPUs may be printed in another order.
    pub sequence: u64,
    pub when_ns: u64,
    /// The CPU; 0 for a refill by the timer.
    pub cpu: u32,
    /// Run time charged there.
    pub ran_ns: u64,
    /// Rest of the runtime that the CPU took from the pool, before the change; negative: a debt.
    pub local_ns: i64,
    /// Runtime left in the pool afterwards.
    pub pool_ns: u64,
    /// The last boundary that has passed.
    pub boundary_ns: u64,
    /// Boundaries that were found to have passed, up to `boundary_ns`.
    pub refilled: u64,
    /// The CPU is throttled afterwards.
    pub throttled: bool,
}

fn line_of(found: &plimsoll_trace) -> Line {
    let change = TraceChange {
        sequence: found.sequence,
        when_ns: found.when_ns,
        cpu: found.cpu,
        ran_ns: found.ran_ns,
        local_ns: found.local_ns,
        pool_ns: found.pool_ns,
        boundary_ns: found.boundary_ns,
        refilled: found.refilled,
        throttled: found.throttled != 0,
    };
    match found.kind {
        CHARGED => Line::Charged(change),
        REFILLED => Line::Refilled(change),
        _ => Line::Served(change),
    }
}

fn state_of(group: &plimsoll_group, slice_ns: u64, nr_cpus: u32) -> TraceState {
    let (pool, params) = (&group.pool, &group.pool.params);
    TraceState {
        sequence: group.nr_traced,
        nr_cpus,
        quota_ns: params.quota_ns,
        period_ns: params.period_ns,
        burst_ns: params.burst_ns,
        slice_ns,
        pool_ns: pool.runtime_ns,
        boundary_ns: pool.boundary_ns,
        period_usage_ns: pool.period_usage_ns,
        nr_throttled_cpus: pool.nr_throttled_cpus,
        nr_periods: pool.stats.nr_periods,
        nr_throttled: pool.stats.nr_throttled,
        throttled_ns: pool.stats.throttled_ns,
        nr_bursts: pool.stats.nr_bursts,
        exceeded_ns: pool.stats.burst_ns,
    }
}

#[derive(Debug)]
struct Recorder {
    objects: Objects,
    slot: u32,
    /// Lock of the reader: the buffer yields each line once.
    _lock: File,
}

impl Recorder {
    fn start(cgroup: &Path) -> Result<Self, SchedExtError> {
        let lock = File::open(PIN_FOLDER).map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                let problem = "the scheduler is not loaded; --enforcer sched-ext loads it";
                SchedExtError::NotReady(problem.into())
            }
            _ => SchedExtError::change("trace", source),
        })?;
        if lock.try_lock().is_err() {
            let problem = "another `plimsoll debug --trace` runs; there can be one at a time";
            return Err(SchedExtError::NotReady(problem.into()));
        }
        let objects = Objects::open()?;
        let slot = objects.slot_of(cgroup_id(cgroup)?);
        let has_quota = |slot: &u32| {
            let group = objects.group(*slot);
            group.is_some_and(|group| group.params.flags & QUOTA != 0)
        };
        let Some(slot) = slot.filter(has_quota) else {
            let problem = "the scheduler keeps no quota for this group; give it --quota";
            return Err(SchedExtError::NotReady(problem.into()));
        };
        Ok(Self {
            objects,
            slot,
            _lock: lock,
        })
    }

    fn state(&self) -> Result<TraceState, SchedExtError> {
        let group = self.objects.group(self.slot);
        let gone = || SchedExtError::NotReady("the scheduler has ended".into());
        let slice_ns = self.objects.bandwidth_slice_ns();
        let nr_cpus = self.objects.nr_cpu_ids;
        Ok(state_of(&group.ok_or_else(gone)?, slice_ns, nr_cpus))
    }

    fn renew(&self) {
        self.objects.set_trace(self.slot, monotonic_ns() + LEASE_NS);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.objects.set_trace(SLOT_NONE, 0);
    }
}

/// Traces the group of a cgroup (its folder) until `go_on`, which is called about 50 times a
/// second, returns false. `on_line` gets every line, and ends the trace if it returns false.
///
/// # Errors
/// When Plimsoll's scheduler is not loaded, the group has no quota, or another process traces.
pub fn record(
    cgroup: &Path,
    mut go_on: impl FnMut() -> bool,
    mut on_line: impl FnMut(Line) -> bool,
) -> Result<(), SchedExtError> {
    let recorder = Recorder::start(cgroup)?;
    let arrived = RefCell::new(Vec::new());
    let ring = ring(&recorder, &arrived)?;
    // Lines of an earlier reader, which may have left no room. After a killed one more may follow.
    let _ = ring.consume();
    arrived.take();
    recorder.renew();
    let begin = recorder.state()?;
    // A change after the end's state may bring a line, too.
    let last = Cell::new(u64::MAX);
    let is_between = |found: &plimsoll_trace| {
        let numbers = begin.sequence + 1..=last.get();
        found.slot == recorder.slot && numbers.contains(&found.sequence)
    };
    let mut wanted = on_line(Line::Begin(begin));
    let nr_passed = Cell::new(0);
    let mut pass_on = |ring: &RingBuffer<'_>| {
        // An error is an interruption.
        let _ = ring.poll(POLL);
        let mut arrived = arrived.take();
        arrived.retain(is_between);
        nr_passed.set(nr_passed.get() + arrived.len() as u64);
        arrived.iter().map(line_of).all(&mut on_line)
    };
    while wanted && go_on() {
        recorder.renew();
        wanted = pass_on(&ring);
    }
    recorder.objects.set_trace(SLOT_NONE, 0);
    // A charge that has just begun ends within this time.
    wanted = wanted && pass_on(&ring);
    let end = recorder.state()?;
    last.set(end.sequence);
    // Those lines whose charges `end` counts may be on their way; of lost ones none comes.
    let mut before = None;
    while wanted && begin.sequence + nr_passed.get() < end.sequence {
        if before.replace(nr_passed.get()) == Some(nr_passed.get()) {
            break;
        }
        wanted = pass_on(&ring);
    }
    if wanted {
        on_line(Line::End(end));
    }
    Ok(())
}

fn ring<'a>(
    recorder: &'a Recorder,
    arrived: &'a RefCell<Vec<plimsoll_trace>>,
) -> Result<RingBuffer<'a>, SchedExtError> {
    let failed = |source| SchedExtError::change("read the trace", source);
    let mut ring = RingBufferBuilder::new();
    let note = |bytes: &[u8]| {
        arrived
            .borrow_mut()
            .extend(value_of::<plimsoll_trace>(bytes));
        0
    };
    ring.add(&recorder.objects.trace, note).map_err(failed)?;
    ring.build().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_kind_of_its_change() {
        let found = plimsoll_trace {
            sequence: 7,
            when_ns: 9,
            ran_ns: 5,
            local_ns: -3,
            pool_ns: 1,
            boundary_ns: 8,
            refilled: 2,
            kind: CHARGED,
            cpu: 1,
            throttled: 1,
            slot: 4,
        };
        let text = serde_json::to_string(&line_of(&found)).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"charged","sequence":7,"when_ns":9,"cpu":1,"ran_ns":5,"local_ns":-3,"pool_ns":1,"boundary_ns":8,"refilled":2,"throttled":true}"#
        );
        let served = line_of(&plimsoll_trace { kind: 3, ..found });
        assert!(matches!(served, Line::Served(change) if change.cpu == 1));
    }
}
