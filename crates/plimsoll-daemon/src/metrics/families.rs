//! Table of metrics: name, unit, help, and the source of each value in the state.

use plimsoll_cgroupfs::CpuStat;
use plimsoll_engine::sample::{
    BatchCounts, HeadroomSample, PerTaskSample, Sample, SchedulerSample, SoftCapSample,
};
use prometheus_client::encoding::{
    CounterValueEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder,
};
use prometheus_client::registry::Unit;

use crate::state::{GroupState, State};

/// Unit of counted things.
const NO_UNIT: &str = "";
const SECONDS: &str = "seconds";
const RATIO: &str = "ratio";
const BYTES: &str = "bytes";

/// Whether a value only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
}

/// The value of a metric, in its base unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

impl EncodeCounterValue for Value {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(whole) => EncodeCounterValue::encode(whole, encoder),
            Self::Real(real) => EncodeCounterValue::encode(real, encoder),
        }
    }
}

impl EncodeGaugeValue for Value {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(whole) => {
                let whole = i64::try_from(*whole).unwrap_or(i64::MAX);
                EncodeGaugeValue::encode(&whole, encoder)
            }
            Self::Real(real) => EncodeGaugeValue::encode(real, encoder),
        }
    }
}

/// One metric, with at most one value for each `T`.
#[derive(Debug)]
pub(super) struct Family<T> {
    /// Without prefix, unit and `_total`.
    pub name: &'static str,
    pub unit: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
    /// `None`: this `T` has no value.
    pub value: fn(&T) -> Option<Value>,
}

impl<T> Family<T> {
    pub(super) fn unit(&self) -> Option<Unit> {
        // The client library's own word for a ratio is `ratios`, which is not the common one.
        (self.unit != NO_UNIT).then(|| Unit::Other(self.unit.to_owned()))
    }
}

const fn counter<T>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<Value>,
) -> Family<T> {
    let kind = MetricKind::Counter;
    Family {
        name,
        unit,
        kind,
        help,
        value,
    }
}

const fn gauge<T>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<Value>,
) -> Family<T> {
    let kind = MetricKind::Gauge;
    Family {
        name,
        unit,
        kind,
        help,
        value,
    }
}

pub(super) fn seconds_of(usec: u64) -> f64 {
    usec as f64 / 1e6
}

fn seconds(usec: u64) -> Option<Value> {
    Some(Value::Real(seconds_of(usec)))
}

fn ratio(ppm: u64) -> Option<Value> {
    Some(Value::Real(ppm as f64 / 1e6))
}

fn count(number: u64) -> Option<Value> {
    Some(Value::Whole(number))
}

fn flag(holds: bool) -> Option<Value> {
    count(u64::from(holds))
}

fn used(group: &GroupState) -> Option<&Sample> {
    group.statistics.as_ref()
}

fn quota(group: &GroupState) -> Option<&CpuStat> {
    used(group)?.quota.as_ref()
}

fn cap(group: &GroupState) -> Option<&CpuStat> {
    used(group)?.cap.as_ref()
}

fn per_task(group: &GroupState) -> Option<&PerTaskSample> {
    used(group)?.per_task.as_ref()
}

fn soft_cap(group: &GroupState) -> Option<&SoftCapSample> {
    used(group)?.soft_cap.as_ref()
}

fn batch(group: &GroupState) -> Option<&BatchCounts> {
    Some(&used(group)?.batch.as_ref()?.total)
}

fn headroom(state: &State) -> Option<&HeadroomSample> {
    state.headroom.as_ref()
}

fn scheduler(state: &State) -> Option<&SchedulerSample> {
    state.scheduler.as_ref()
}

#[rustfmt::skip] // One metric is easier to find by its name at the start of a line.
pub(super) const OF_GROUPS: &[Family<GroupState>] = &[
    gauge("group_applied", NO_UNIT, "1 if the group is applied, 0 if it is not",
        |group| flag(group.statistics.is_some())),
    gauge("group_problem", NO_UNIT, "1 if the desired state of the group is not, or not wholly, in force",
        |group| flag(group.problem.is_some())),
    gauge("group_foreign_changes", NO_UNIT, "Kernel files of the group with a value of another process",
        |group| count(used(group)?.foreign_changes.len() as u64)),
    gauge("processes", NO_UNIT, "Processes in the group now",
        |group| count(used(group)?.processes)),
    counter("cpu_usage", SECONDS, "CPU time used, by tasks that have ended too",
        |group| seconds(used(group)?.usage_usec)),

    gauge("cfs_quota", RATIO, "Quota by its period: 1 is one CPU. Missing if unlimited",
        |group| ratio(group.knobs.quota?.rate_ppm()?)),
    counter("cfs_periods", NO_UNIT, "Periods of the quota that elapsed while the group was active",
        |group| count(quota(group)?.nr_periods)),
    counter("cfs_throttled_periods", NO_UNIT, "Of the periods of the quota, those that ended throttled",
        |group| count(quota(group)?.nr_throttled)),
    counter("cfs_throttled", SECONDS, "Time spent throttled by the quota, summed over CPUs",
        |group| seconds(quota(group)?.throttled_usec)),
    counter("cfs_burst_periods", NO_UNIT, "Of the periods of the quota, those whose usage exceeded it",
        |group| count(quota(group)?.nr_bursts)),
    counter("cfs_burst", SECONDS, "By how much the usage of periods exceeded the quota, summed",
        |group| seconds(quota(group)?.burst_usec)),

    gauge("cap_limit", RATIO, "Desired hard cap: 1 is one CPU",
        |group| ratio(u64::from(group.knobs.cap?.permille) * 1000)),
    counter("cap_periods", NO_UNIT, "Periods of the hard cap that elapsed while the group was active",
        |group| count(cap(group)?.nr_periods)),
    counter("cap_throttled_periods", NO_UNIT, "Of the periods of the hard cap, those that ended throttled",
        |group| count(cap(group)?.nr_throttled)),
    counter("cap_throttled", SECONDS, "Time spent throttled by the hard cap, summed over CPUs",
        |group| seconds(cap(group)?.throttled_usec)),

    gauge("per_task_cap_tasks", NO_UNIT, "Tasks that have a cap of their own now",
        |group| count(per_task(group)?.tasks)),
    counter("per_task_cap_tasks_seen", NO_UNIT, "Tasks that were given a cap of their own",
        |group| count(per_task(group)?.tasks_total)),
    counter("per_task_cap_periods", NO_UNIT, "Of all tasks with a cap of their own, periods that elapsed while active",
        |group| count(per_task(group)?.nr_periods)),
    counter("per_task_cap_throttled_periods", NO_UNIT, "Of the periods of tasks with a cap of their own, those that ended throttled",
        |group| count(per_task(group)?.nr_throttled)),

    gauge("soft_cap_limit", RATIO, "Desired soft cap: 1 is one CPU",
        |group| ratio(u64::from(group.knobs.soft_cap?.permille) * 1000)),
    gauge("soft_cap_rate", RATIO, "Usage rate that the soft cap is compared with, a decaying average: 1 is one CPU",
        |group| ratio(soft_cap(group)?.rate_ppm)),
    gauge("soft_cap_background", NO_UNIT, "1 if the group is over its soft cap, and so in the background",
        |group| flag(soft_cap(group)?.background)),
    counter("soft_cap_switches", NO_UNIT, "Times that the group went into the background or came back",
        |group| count(soft_cap(group)?.nr_switches)),

    counter("batch_run", SECONDS, "Time in which the BPF scheduler ran the group's tasks",
        |group| seconds(batch(group)?.run_usec)),
    counter("batch_wait", SECONDS, "Time for which the group's tasks waited until the BPF scheduler ran them",
        |group| seconds(batch(group)?.wait_usec)),
    counter("batch_switches", NO_UNIT, "Times that the BPF scheduler began to run a task of the group",
        |group| count(batch(group)?.nr_switches)),
    counter("batch_preemptions", NO_UNIT, "Of the switches, those that normal work stopped with time left",
        |group| count(batch(group)?.nr_preempted)),
    counter("batch_overdue", NO_UNIT, "Of the switches, those because the task had waited for too long",
        |group| count(batch(group)?.nr_overdue)),
    counter("batch_holders", NO_UNIT, "Of the switches, those because others may wait for a lock of the task",
        |group| count(batch(group)?.nr_holders)),
];

/// Metrics of the machine and of the daemon.
#[rustfmt::skip]
pub(super) const OF_THE_STATE: &[Family<State>] = &[
    gauge("machine_cpus", NO_UNIT, "CPUs that are online",
        |state| count(u64::from(state.machine.nr_cpus))),
    counter("machine_busy", SECONDS, "CPU time of everything",
        |state| seconds(state.machine.busy_usec)),
    counter("machine_batch", SECONDS, "Of the CPU time of everything, that of batch groups",
        |state| seconds(state.machine.batch_usec)),

    gauge("headroom", RATIO, "Headroom in force, of all CPUs",
        |state| ratio(u64::from(headroom(state)?.headroom_ppm))),
    gauge("headroom_allowance", RATIO, "Share of all CPUs that batch work may use now",
        |state| ratio(headroom(state)?.allowance_ppm)),
    gauge("headroom_side", RATIO, "Share of all CPUs that batch work used lately",
        |state| ratio(headroom(state)?.side_ppm)),
    gauge("headroom_nonside", RATIO, "Share of all CPUs that all but batch work used lately",
        |state| ratio(headroom(state)?.nonside_ppm)),
    gauge("headroom_side_groups", NO_UNIT, "Groups that share the allowance",
        |state| count(headroom(state)?.nr_sides)),
    counter("headroom_shortfall", SECONDS, "CPU time that idle time fell short of the headroom while batch work ran above its tolerance",
        |state| seconds(headroom(state)?.headroom_shortfall_usec)),
    counter("headroom_updates", NO_UNIT, "Times that the headroom controller ran",
        |state| count(headroom(state)?.nr_updates)),
    counter("headroom_writes", NO_UNIT, "Quotas that the headroom controller wrote",
        |state| count(headroom(state)?.nr_writes)),
    counter("headroom_controller_cpu", SECONDS, "CPU time that the headroom controller itself used",
        |state| seconds(headroom(state)?.controller_usec)),

    counter("scheduler_reloads", NO_UNIT, "Times that the BPF scheduler was loaded again",
        |state| count(scheduler(state)?.nr_reloads)),

    gauge("guard_attached", NO_UNIT, "1 if the guard is attached while the fair class runs batch work, 0 if this host has none",
        |state| count(u64::from(state.daemon.guard.as_ref()?.problem.is_none()))),
    counter("guard_inversions", NO_UNIT, "Looks of the guard at which batch work ran before normal work",
        |state| count(state.daemon.guard.as_ref()?.counts.nr_inverted)),
    counter("guard_pulls", NO_UNIT, "Tasks that waited for normal work and that the guard moved to a CPU with batch work",
        |state| count(state.daemon.guard.as_ref()?.counts.nr_pulled)),
    counter("guard_pushes", NO_UNIT, "Batch tasks for which normal work waited and that the guard moved",
        |state| count(state.daemon.guard.as_ref()?.counts.nr_pushed)),
    counter("guard_wakeups", NO_UNIT, "Times that the guard had a CPU pick again",
        |state| count(state.daemon.guard.as_ref()?.counts.nr_woken)),

    gauge("daemon_uptime", SECONDS, "Time since the daemon started",
        |state| seconds(state.daemon.uptime_usec)),
    gauge("daemon_groups", NO_UNIT, "Groups that the daemon knows, also those that are not applied",
        |state| count(state.groups.len() as u64)),
    gauge("daemon_problems", NO_UNIT, "Problems of the daemon itself that an operator should look at",
        |state| count(state.daemon.problems.len() as u64)),
    gauge("daemon_resident_memory", BYTES, "Resident memory of the daemon",
        |state| count(state.daemon.resident_bytes)),
    counter("daemon_cpu", SECONDS, "CPU time that the daemon used",
        |state| seconds(state.daemon.cpu_usec)),
    counter("daemon_reloads", NO_UNIT, "Configurations that were taken over, the first included",
        |state| count(state.daemon.counters.reloads)),
    counter("daemon_reloads_refused", NO_UNIT, "Configurations that were refused",
        |state| count(state.daemon.counters.reloads_refused)),
    counter("daemon_foreign_changes", NO_UNIT, "External changes of kernel files that were noticed",
        |state| count(state.daemon.counters.foreign_changes)),
    counter("daemon_apply_failures", NO_UNIT, "Groups that could not be applied, each time counted",
        |state| count(state.daemon.counters.apply_failures)),
    counter("daemon_requests", NO_UNIT, "Requests on the control socket",
        |state| count(state.daemon.counters.requests)),
    counter("daemon_requests_refused", NO_UNIT, "Of the requests on the control socket, those refused",
        |state| count(state.daemon.counters.requests_refused)),
    counter("daemon_events_lost", NO_UNIT, "Times that the kernel's queue of events ran over and everything was looked at again",
        |state| count(state.daemon.counters.events_lost)),
];
