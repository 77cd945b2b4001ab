//! Detailed state of the scheduler, for `plimsoll debug`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use plimsoll_engine::knobs::Headroom;
use plimsoll_engine::runtime::RuntimeFolder;
use serde::Serialize;

use crate::SchedExtError;
use crate::bpf_intf::{
    plimsoll_cpu_state_PLIMSOLL_CPU_BATCH as CPU_BATCH,
    plimsoll_cpu_state_PLIMSOLL_CPU_IDLE as CPU_IDLE, plimsoll_decision, plimsoll_decision_kind,
    plimsoll_decision_kind_PLIMSOLL_CAPPED as CAPPED,
    plimsoll_decision_kind_PLIMSOLL_HEADROOM as HEADROOM,
    plimsoll_decision_kind_PLIMSOLL_HOLDER as HOLDER,
    plimsoll_decision_kind_PLIMSOLL_LIMITED as LIMITED,
    plimsoll_decision_kind_PLIMSOLL_OVERDUE as OVERDUE,
    plimsoll_decision_kind_PLIMSOLL_PREEMPTED as PREEMPTED,
    plimsoll_decision_kind_PLIMSOLL_PULLED as PULLED,
    plimsoll_decision_kind_PLIMSOLL_THROTTLED as THROTTLED, plimsoll_group,
    plimsoll_group_flags_PLIMSOLL_BATCH as BATCH, plimsoll_group_flags_PLIMSOLL_CAP as CAP,
    plimsoll_group_flags_PLIMSOLL_CPU_LIMIT as CPU_LIMIT,
    plimsoll_group_flags_PLIMSOLL_PER_TASK as PER_TASK,
    plimsoll_group_flags_PLIMSOLL_QUOTA as QUOTA,
    plimsoll_group_flags_PLIMSOLL_SOFT_CAP as SOFT_CAP, plimsoll_group_flags_PLIMSOLL_USED as USED,
    plimsoll_limits_PLIMSOLL_SLOT_NONE as SLOT_NONE,
};
use crate::host::{Readiness, SchedExtHost};
use crate::objects::{NR_SLOTS, Objects};
use crate::sample::monotonic_ns;

/// The kernel's counters of events of the scheduler.
const EVENTS: &str = "/sys/kernel/sched_ext/root/events";

#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// The host, and the loaded scheduler.
    pub host: Readiness,
    /// The kernel's id of the map of groups, which differs between loads.
    pub groups_id: u32,
    pub machine: MachineDump,
    /// The groups, by slot.
    pub groups: Vec<GroupDump>,
    pub cpus: Vec<CpuDump>,
    /// The last decisions of all CPUs, the oldest first.
    pub decisions: Vec<Decision>,
    /// The kernel's counters of rare events.
    pub events: BTreeMap<String, i64>,
}

#[derive(Debug, Default, Serialize)]
pub struct MachineDump {
    /// A group demands headroom.
    pub headroom_on: bool,
    /// Share of all CPUs that is kept idle; all of it, where a number of CPUs is kept idle.
    pub headroom_ppm: u32,
    pub headroom: Option<String>,
    /// CPU time that batch work always gets.
    pub tolerance_runtime_usec: u64,
    /// Period in which it gets that much.
    pub tolerance_period_usec: u64,
    /// Credit of batch work under the law.
    pub credit_usec: i64,
    /// Allowance of the last interval.
    pub allowance_usec: u64,
    /// Time-integral of the missing headroom.
    pub shortfall_usec: u64,
    pub nr_updates: u64,
    /// Batch tasks that were preempted for headroom.
    pub nr_evictions: u64,
    /// Idle CPUs taken by normal tasks.
    pub nr_takeovers: u64,
    /// Time in which fewer CPUs were idle than `--headroom Ncpus` demands although batch work ran
    /// above its tolerance.
    pub shortage_usec: u64,
    /// Number of such times by length: under 2, 4, 8 … µs, and finally all longer ones.
    pub nr_shortages: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub struct GroupDump {
    /// Its slot; 0 is for tasks of no group.
    pub slot: u32,
    /// The kernel's id of its cgroup.
    pub cgroup_id: u64,
    pub flags: Vec<&'static str>,
    /// The slot of the group around it.
    pub parent: Option<u32>,
    /// Weight relative to other groups.
    pub weight: Option<u32>,
    /// Tasks that run or wait.
    pub nr_runnable: u32,
    /// CPUs on which it runs, while it has a limit.
    pub nr_running: u32,
    /// The group is over its soft cap.
    pub background: bool,
    /// Runtime left in the pool; missing without a quota.
    pub pool_usec: Option<u64>,
    /// Runtime that a CPU takes from the pool at a time; missing without a quota.
    pub slice_usec: Option<u64>,
    /// CPUs that are throttled now.
    pub nr_throttled_cpus: u32,
    /// Usage rate in ppm of one CPU.
    pub rate_ppm: u64,
    /// Time until its cap lets it run; 0: it may run.
    pub blocked_usec: u64,
}

#[derive(Debug, Serialize)]
pub struct CpuDump {
    pub cpu: u32,
    /// `idle`, `batch` or `other`.
    pub state: &'static str,
    /// Time since this state began.
    pub since_usec: u64,
    /// The slot of the group that runs there.
    pub slot: Option<u32>,
    /// The CPU holds a token for batch work.
    #[serde(rename = "side")]
    pub token: bool,
    /// Number of its last-level cache.
    pub llc: u32,
    /// Share of the CPU that is left for batch work.
    pub room_ppm: u32,
    pub nr_dispatches: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub ago_usec: u64,
    pub cpu: u32,
    pub kind: &'static str,
    pub slot: u32,
    pub pid: u32,
    /// Time that is left, was waited or is to wait, depending on the kind.
    pub detail_usec: u32,
}

fn flag_names(flags: u32) -> Vec<&'static str> {
    let names = [
        (BATCH, "batch"),
        (QUOTA, "quota"),
        (CAP, "cap"),
        (SOFT_CAP, "soft-cap"),
        (PER_TASK, "per-task"),
        (CPU_LIMIT, "cpu-limit"),
    ];
    let set = names.into_iter().filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, name)| name).collect()
}

fn kind_name(kind: plimsoll_decision_kind) -> &'static str {
    match kind {
        THROTTLED => "throttled",
        CAPPED => "capped",
        LIMITED => "limited",
        HEADROOM => "headroom",
        PREEMPTED => "preempted",
        OVERDUE => "overdue",
        HOLDER => "holder",
        PULLED => "pulled",
        _ => "other",
    }
}

fn group_of(slot: u32, group: &plimsoll_group, slice_ns: u64, now_ns: u64) -> GroupDump {
    let params = &group.params;
    GroupDump {
        slot,
        cgroup_id: params.cgroup_id,
        flags: flag_names(params.flags),
        parent: (params.parent != SLOT_NONE).then_some(params.parent),
        weight: (params.weight != 0).then_some(params.weight),
        nr_runnable: group.nr_runnable,
        nr_running: group.nr_running,
        background: group.background != 0,
        pool_usec: (params.flags & QUOTA != 0).then_some(group.pool.runtime_ns / 1000),
        slice_usec: (params.flags & QUOTA != 0).then_some(slice_ns / 1000),
        nr_throttled_cpus: group.pool.nr_throttled_cpus,
        rate_ppm: group.cap.rate_ppm,
        blocked_usec: group.blocked_until_ns.saturating_sub(now_ns) / 1000,
    }
}

fn cpu_of(objects: &Objects, cpu: u32, now_ns: u64) -> Option<CpuDump> {
    let found = objects.cpu(cpu).filter(|found| found.online != 0)?;
    let state = match found.state {
        CPU_IDLE => "idle",
        CPU_BATCH => "batch",
        _ => "other",
    };
    Some(CpuDump {
        cpu,
        state,
        since_usec: now_ns.saturating_sub(found.since_ns) / 1000,
        slot: (found.state == CPU_BATCH).then_some(found.slot),
        token: found.token != 0,
        llc: found.llc,
        room_ppm: found.room_ppm,
        nr_dispatches: found.nr_dispatches,
    })
}

/// Decisions of all CPUs in the order in which they were taken.
fn in_order(decisions: Vec<(u32, plimsoll_decision)>, now_ns: u64) -> Vec<Decision> {
    let mut taken: Vec<(u32, plimsoll_decision)> = decisions
        .into_iter()
        .filter(|(_, decision)| decision.kind != 0)
        .collect();
    taken.sort_by_key(|(_, decision)| decision.when_ns);
    let named = taken.into_iter().map(|(cpu, decision)| Decision {
        ago_usec: now_ns.saturating_sub(decision.when_ns) / 1000,
        cpu,
        kind: kind_name(decision.kind),
        slot: decision.slot,
        pid: decision.pid,
        detail_usec: decision.detail,
    });
    named.collect()
}

fn machine_of(objects: &Objects) -> MachineDump {
    let Some(machine) = objects.machine() else {
        return MachineDump::default();
    };
    let headroom = &machine.headroom;
    let params = &headroom.params;
    let in_force = match (params.headroom_ppm, machine.headroom_cpus) {
        (0, _) => None,
        (_, 0) => Some(Headroom::Share(params.headroom_ppm)),
        (_, cpus) => Some(Headroom::Cpus(cpus)),
    };
    MachineDump {
        headroom_on: in_force.is_some(),
        headroom_ppm: params.headroom_ppm,
        headroom: in_force.map(|headroom| headroom.to_string()),
        tolerance_runtime_usec: params.tolerance_runtime_ns / 1000,
        tolerance_period_usec: params.tolerance_period_ns / 1000,
        credit_usec: headroom.credit_ns / 1000,
        allowance_usec: headroom.allowance_ns / 1000,
        shortfall_usec: headroom.shortfall_ns / 1000,
        nr_updates: machine.nr_updates,
        nr_evictions: machine.nr_evictions,
        nr_takeovers: machine.nr_takeovers,
        shortage_usec: machine.shortage_ns / 1000,
        nr_shortages: machine.nr_shortages.to_vec(),
    }
}

/// Parses lines of a name and a number.
fn parse_events(text: &str) -> BTreeMap<String, i64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?)))
        .collect()
}

impl Snapshot {
    /// Reads everything, and changes nothing.
    ///
    /// # Errors
    /// When no scheduler of ours is loaded.
    pub fn take(runtime: &RuntimeFolder) -> Result<Self, SchedExtError> {
        let host = SchedExtHost::readiness(runtime);
        host.check()?;
        if !host.is_own {
            return Err(SchedExtError::NotReady(
                "plimsoll's scheduler is not loaded".into(),
            ));
        }
        let objects = Objects::open()?;
        let (now_ns, slice_ns) = (monotonic_ns(), objects.bandwidth_slice_ns());
        let cpus = 0..objects.nr_cpu_ids;
        let decided = cpus
            .clone()
            .filter_map(|cpu| Some((cpu, objects.decisions(cpu)?)));
        let decided = decided.flat_map(|(cpu, all)| all.last.map(|decision| (cpu, decision)));
        Ok(Self {
            groups_id: objects.id,
            machine: machine_of(&objects),
            groups: (0..=NR_SLOTS)
                .filter_map(|slot| Some((slot, objects.group(slot)?)))
                .filter(|(_, group)| group.params.flags & USED != 0)
                .map(|(slot, group)| group_of(slot, &group, slice_ns, now_ns))
                .collect(),
            cpus: cpus
                .filter_map(|cpu| cpu_of(&objects, cpu, now_ns))
                .collect(),
            decisions: in_order(decided.collect(), now_ns),
            events: parse_events(&fs::read_to_string(Path::new(EVENTS)).unwrap_or_default()),
            host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_of_all_cpus_come_in_the_order_of_time() {
        let decision = |when_ns, kind| plimsoll_decision {
            when_ns,
            kind,
            slot: 1,
            pid: 2,
            detail: 3,
        };
        let all = vec![
            (0, decision(5_000, LIMITED)),
            (0, decision(9_000, PREEMPTED)),
            (0, decision(0, 0)),
            (1, decision(7_000, THROTTLED)),
        ];
        let ordered = in_order(all, 10_000);
        let seen: Vec<_> = ordered
            .iter()
            .map(|d| (d.ago_usec, d.cpu, d.kind))
            .collect();
        assert_eq!(
            seen,
            [(5, 0, "limited"), (3, 1, "throttled"), (1, 0, "preempted")]
        );
    }

    #[test]
    fn events_are_lines_of_a_name_and_a_number() {
        let events = parse_events("SCX_EV_SELECT_CPU_FALLBACK 0\nSCX_EV_X -3\nodd\n");
        assert_eq!(events.len(), 2);
        assert_eq!(events["SCX_EV_X"], -3);
    }
}
