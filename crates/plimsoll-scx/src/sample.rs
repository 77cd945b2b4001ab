//! Conversion of the scheduler's counters to the statistics of a group.

use std::time::{Duration, Instant};

use plimsoll_cgroupfs::CpuStat;
use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::knobs::{HeadroomDemand, Knobs};
use plimsoll_engine::sample::{
    BatchCounts, BatchCpu, BatchSample, HeadroomSample, Sample, SoftCapSample, TASK_RATES_MAX,
    TaskRate, TaskRates,
};
use plimsoll_engine::tasks;

use crate::bpf_intf::{
    plim_bandwidth_stats, plimsoll_cpu, plimsoll_cpu_state_PLIMSOLL_CPU_BATCH as CPU_BATCH,
    plimsoll_cpu_state_PLIMSOLL_CPU_IDLE as CPU_IDLE, plimsoll_group_cpu, plimsoll_machine,
};
use crate::objects::Objects;

const NSEC_PER_USEC: u64 = 1000;
const PPM: u64 = 1_000_000;
/// Time over which shares of CPU time are averaged.
const USE_INTERVAL: Duration = Duration::from_secs(1);

fn stat_of(stats: &plim_bandwidth_stats) -> CpuStat {
    CpuStat {
        nr_periods: stats.nr_periods,
        nr_throttled: stats.nr_throttled,
        throttled_usec: stats.throttled_ns / NSEC_PER_USEC,
        nr_bursts: stats.nr_bursts,
        burst_usec: stats.burst_ns / NSEC_PER_USEC,
    }
}

fn counts_of(group_cpu: &plimsoll_group_cpu) -> BatchCounts {
    BatchCounts {
        run_usec: group_cpu.run_ns / NSEC_PER_USEC,
        wait_usec: group_cpu.wait_ns / NSEC_PER_USEC,
        nr_switches: group_cpu.nr_switches,
        nr_preempted: group_cpu.nr_preempted,
        nr_overdue: group_cpu.nr_overdue,
        nr_holders: group_cpu.nr_holders,
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct GroupCounts {
    quota: CpuStat,
    soft_cap: SoftCapSample,
    cpus: Vec<BatchCpu>,
}

impl GroupCounts {
    /// Counters of a cgroup since the scheduler has had its group.
    pub fn of(objects: &Objects, cgroup_id: u64) -> Self {
        let slot = objects.slot_of(cgroup_id);
        let found = slot.and_then(|slot| Some((slot, objects.group(slot)?)));
        let Some((slot, group)) = found else {
            return Self::default();
        };
        let cpus = (0..objects.nr_cpu_ids).filter_map(|cpu| {
            let counts = counts_of(&objects.group_cpu(slot, cpu)?);
            // A CPU that does not exist, or was not used.
            (counts != BatchCounts::default()).then_some(BatchCpu { cpu, counts })
        });
        Self {
            quota: stat_of(&group.pool.stats),
            soft_cap: SoftCapSample {
                rate_ppm: group.cap.rate_ppm,
                background: group.background != 0,
                nr_switches: group.nr_background_switches,
            },
            cpus: cpus.collect(),
        }
    }

    /// Adds the counters of an earlier load of the scheduler.
    pub fn after(mut self, earlier: &Self) -> Self {
        self.quota = self.quota.plus(&earlier.quota);
        self.soft_cap.nr_switches += earlier.soft_cap.nr_switches;
        for before in &earlier.cpus {
            match self.cpus.iter_mut().find(|now| now.cpu == before.cpu) {
                Some(now) => now.counts = now.counts.plus(&before.counts),
                None => self.cpus.push(*before),
            }
        }
        self.cpus.sort_by_key(|cpu| cpu.cpu);
        self
    }

    pub fn fill(self, sample: &mut Sample, knobs: &Knobs) {
        sample.quota = knobs.quota.map(|_| self.quota);
        let of_tree = knobs.soft_cap.is_some() && !knobs.per_task;
        sample.soft_cap = of_tree.then_some(self.soft_cap);
        let total = self.cpus.iter().map(|cpu| cpu.counts);
        sample.batch = Some(BatchSample {
            total: total.fold(BatchCounts::default(), |sum, one| sum.plus(&one)),
            cpus: self.cpus,
        });
    }
}

/// Returns the usage rates of tasks, or of the first `TASK_RATES_MAX` of them. A task that the
/// scheduler does not schedule has none.
pub(crate) fn task_rates(objects: &Objects, tids: &[i32]) -> TaskRates {
    let rate = |tid: &i32| {
        let rate = objects.task_rate(*tid)?;
        Some(TaskRate {
            tid: *tid,
            command: tasks::command(*tid)?,
            rate_ppm: rate.rate_ppm,
            background: rate.background != 0,
        })
    };
    let rates = tids.iter().take(TASK_RATES_MAX).filter_map(rate);
    TaskRates::new(rates.collect(), tids.len())
}

/// Idle time and batch time of all CPUs so far, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    idle_ns: u64,
    batch_ns: u64,
}

/// Sums up the times of all CPUs. `now_ns`: of the kernel's monotonic clock, as in the map.
fn used_by(cpus: impl Iterator<Item = plimsoll_cpu>, now_ns: u64) -> Used {
    cpus.fold(Used::default(), |sum, cpu| {
        let since_ns = now_ns.saturating_sub(cpu.since_ns);
        let is_idle = cpu.online != 0 && cpu.state == CPU_IDLE;
        let is_batch = cpu.online != 0 && cpu.state == CPU_BATCH;
        Used {
            idle_ns: sum.idle_ns + cpu.idle_ns + if is_idle { since_ns } else { 0 },
            batch_ns: sum.batch_ns + cpu.batch_ns + if is_batch { since_ns } else { 0 },
        }
    })
}

/// The clock of the scheduler's maps.
pub(crate) fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let now = now.map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Recent usage of the machine.
#[derive(Debug, Default)]
pub(crate) struct MachineUse {
    last: Option<(Instant, Used)>,
    batch_ppm: u64,
    nonbatch_ppm: u64,
}

impl MachineUse {
    /// Updates the averages. To be called often; has an effect once a second.
    pub fn observe(&mut self, objects: &Objects, now: Instant) {
        if self.last.is_some_and(|(at, _)| now < at + USE_INTERVAL) {
            return;
        }
        let cpus = (0..objects.nr_cpu_ids).filter_map(|cpu| objects.cpu(cpu));
        let used = used_by(cpus, monotonic_ns());
        if let Some((at, before)) = self.last.replace((now, used)) {
            let elapsed_ns = u64::try_from((now - at).as_nanos()).unwrap_or(u64::MAX);
            let all_ns = elapsed_ns.saturating_mul(nr_cpus_online().into()).max(1);
            let ppm =
                |ns: u64| (ns.min(all_ns) / NSEC_PER_USEC * PPM) / (all_ns / NSEC_PER_USEC).max(1);
            let idle_ppm = ppm(used.idle_ns.saturating_sub(before.idle_ns));
            self.batch_ppm = ppm(used.batch_ns.saturating_sub(before.batch_ns));
            self.nonbatch_ppm = PPM.saturating_sub(idle_ppm + self.batch_ppm);
        }
    }

    /// The state of headroom. `demand`: of all groups; `names`: the groups of this process that
    /// share the allowance, or the first of them; `nr_groups`: their number.
    pub fn sample(
        &self,
        machine: &plimsoll_machine,
        demand: &HeadroomDemand,
        names: Vec<String>,
        nr_groups: u64,
    ) -> HeadroomSample {
        let params = &machine.headroom.params;
        let in_force = demand.in_force(nr_cpus_online());
        let headroom_ppm = in_force.map_or(0, |headroom| headroom.share_ppm(nr_cpus_online()));
        let used_ppm = self.nonbatch_ppm;
        let nr_cpus = u64::from(params.nr_cpus).max(1);
        let tolerance_ppm = params.tolerance_runtime_ns.saturating_mul(PPM)
            / params.tolerance_period_ns.max(1)
            / nr_cpus;
        HeadroomSample {
            headroom_ppm,
            in_force: in_force.map(|headroom| headroom.to_string()),
            overruled: demand
                .overruled(nr_cpus_online())
                .map(|headroom| headroom.to_string()),
            allowance_ppm: PPM
                .saturating_sub(used_ppm + u64::from(headroom_ppm))
                .max(tolerance_ppm),
            side_ppm: self.batch_ppm,
            nonside_ppm: self.nonbatch_ppm,
            headroom_shortfall_usec: machine.headroom.shortfall_ns / NSEC_PER_USEC,
            nr_updates: machine.nr_updates,
            nr_writes: 0,
            controller_usec: 0,
            nr_sides: nr_groups,
            sides: names,
        }
    }
}
