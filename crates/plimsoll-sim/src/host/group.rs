//! A group of the scenario: its knobs in the core's terms, and the core's state
//! for it.

use std::collections::VecDeque;
use std::ops::Range;

use plimsoll_engine::knobs::{Bandwidth, Class, Knobs};
use plimsoll_policy::bandwidth::{self, Pool};
use plimsoll_policy::batch::{self, Limit};
use plimsoll_policy::ratecap::{self, Bucket};

use crate::scenario::Machine;

use super::HostError;
use super::cpuset::CpuSet;
use super::throttled::ThrottledTasks;

/// State of a group on one CPU.
#[derive(Debug, Clone)]
pub(super) struct OnCpu {
    pub(super) limit: Limit,
    /// Number of its tasks in the fair queue of the CPU.
    pub(super) nr_queued: u32,
    /// Tasks that wait for runtime on this CPU.
    pub(super) throttled: ThrottledTasks,
    /// Tasks bound to this CPU that wait for its limit.
    pub(super) limited: ThrottledTasks,
}

/// Counters since the end of the warm-up.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counters {
    pub(super) cpu_ns: u64,
    pub(super) batch_ns: u64,
    pub(super) wait_ns: u64,
    pub(super) nr_switches: u64,
    pub(super) nr_preemptions: u64,
    pub(super) nr_capped: u64,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// Its tasks, which have consecutive numbers.
    pub(super) tasks: Range<u32>,
    pub(super) batch: bool,
    /// Whether it is over its soft cap, and so in the batch class for now.
    pub(super) background: bool,
    /// Weight, in the unit of task weights.
    pub(super) weight: u32,
    /// Sum of the weights of its runnable tasks.
    pub(super) weight_sum: u64,
    pub(super) nice: i32,
    pub(super) pool: Option<Pool>,
    /// Statistics of the pool at the end of the warm-up.
    pub(super) stats_before: bandwidth::Stats,
    /// By CPU if the group has a quota, else empty.
    pub(super) lanes: Vec<bandwidth::Cpu>,
    /// By CPU if the group has a quota or a per-CPU limit, else empty.
    pub(super) on_cpu: Vec<OnCpu>,
    /// Throttled CPUs, in the order in which they were throttled.
    pub(super) throttled_cpus: VecDeque<u32>,
    /// Limit of each CPU.
    pub(super) limit_ppm: Option<u32>,
    /// With a per-CPU limit: CPUs on which the limit of the current window may
    /// not be used up. A member may turn out to be at its limit when it is
    /// checked.
    pub(super) below_limit: Option<CpuSet>,
    /// With a per-CPU limit: tasks that wait for it, by cache.
    pub(super) limited: Vec<ThrottledTasks>,
    /// Caches on which tasks wait for the limit.
    pub(super) limited_llcs: CpuSet,
    /// Bucket of the whole group, if it has a group cap.
    pub(super) bucket: Option<Bucket>,
    /// Time up to which that bucket is charged.
    bucket_charged_ns: u64,
    /// Bucket parameters of each task, if caps are per task.
    pub(super) task_caps: Option<ratecap::Params>,
    /// Tasks that wait for the bucket of the group.
    pub(super) capped: VecDeque<u32>,
    /// CPU time since its usage rate was last compared.
    pub(super) rate_ran_ns: u64,
    /// CPUs that it runs on now.
    pub(super) running: Vec<u32>,
    pub(super) counters: Counters,
}

impl Group {
    pub(super) fn new(name: &str, knobs: &Knobs, machine: &Machine) -> Result<Self, HostError> {
        let cpus = machine.cpus;
        let refused = |problem: String| HostError::Group {
            group: name.to_owned(),
            problem,
        };
        knobs.check().map_err(|error| refused(error.to_string()))?;
        let pool =
            pool(knobs, machine.bandwidth_slice_ns).map_err(|error| refused(error.to_string()))?;
        let caps = caps(knobs);
        let bucket = caps
            .map(|params| Bucket::new(params, 0))
            .transpose()
            .map_err(|error| refused(error.to_string()))?
            .filter(|_| !knobs.per_task);
        let limit_ppm = knobs.cpu_limit.map(|limit| limit.ppm);
        let lanes = if pool.is_some() { cpus } else { 0 };
        let parts = if limit_ppm.is_some() { cpus } else { lanes };
        let on_cpu = OnCpu {
            limit: Limit::new(0),
            nr_queued: 0,
            throttled: ThrottledTasks::new(),
            limited: ThrottledTasks::new(),
        };
        let llcs = limit_ppm.map_or(0, |_| machine.cpus / machine.cpus_per_llc);
        let weight = knobs
            .weight
            .map_or(batch::GROUP_WEIGHT_DEFAULT, |w| w.weight);
        Ok(Self {
            name: name.to_owned(),
            tasks: 0..0,
            batch: knobs.class == Some(Class::Batch),
            background: bucket.as_ref().is_some_and(Bucket::is_background),
            weight: batch::group_weight(weight),
            weight_sum: 0,
            nice: knobs.nice.map_or(0, |nice| nice.nice),
            pool,
            stats_before: bandwidth::Stats::default(),
            lanes: vec![bandwidth::Cpu::default(); lanes as usize],
            on_cpu: vec![on_cpu; parts as usize],
            throttled_cpus: VecDeque::new(),
            limit_ppm,
            below_limit: limit_ppm.map(|_| CpuSet::full(cpus)),
            limited: vec![ThrottledTasks::new(); llcs as usize],
            limited_llcs: CpuSet::new(llcs),
            bucket,
            bucket_charged_ns: 0,
            task_caps: caps.filter(|_| knobs.per_task),
            capped: VecDeque::new(),
            rate_ran_ns: 0,
            running: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Whether the group may have time left in its limit of a CPU.
    pub(super) fn is_below_limit_on(&self, cpu: u32) -> bool {
        self.below_limit
            .as_ref()
            .is_none_or(|below_limit| below_limit.contains(cpu))
    }

    /// Charges the bucket up to now, for all CPUs that the group runs on.
    /// Called before that number changes, so that each interval is charged with
    /// the number of CPUs it had.
    pub(super) fn charge_bucket(&mut self, now_ns: u64) {
        let start_ns = std::mem::replace(&mut self.bucket_charged_ns, now_ns);
        let ran_ns = (now_ns - start_ns) * self.running.len() as u64;
        if let Some(bucket) = &mut self.bucket
            && ran_ns > 0
        {
            bucket.charge(start_ns, ran_ns);
        }
    }

    /// Whether the class of its tasks depends on its usage rate.
    pub(super) fn has_soft_cap(&self) -> bool {
        let params = self.bucket.as_ref().map(Bucket::params).or(self.task_caps);
        params.is_some_and(|params| params.soft_permille.is_some())
    }
}

fn pool(knobs: &Knobs, slice_ns: u64) -> Result<Option<Pool>, bandwidth::ParamError> {
    let Some(quota) = knobs.quota.filter(|quota| quota.quota_ns.is_some()) else {
        return Ok(None);
    };
    let bandwidth = Bandwidth::of(quota, knobs.burst);
    let params = bandwidth::Params {
        period_ns: quota.period_ns,
        quota_ns: quota.quota_ns,
        burst_ns: bandwidth.burst_ns,
        slice_ns,
    };
    Pool::new(params, 0).map(Some)
}

fn caps(knobs: &Knobs) -> Option<ratecap::Params> {
    if knobs.cap.is_none() && knobs.soft_cap.is_none() {
        return None;
    }
    Some(ratecap::Params {
        hard_permille: knobs.cap.map_or(0, |cap| cap.permille),
        soft_permille: knobs.soft_cap.map(|cap| cap.permille),
        half_life_ns: knobs.half_life.unwrap_or_default().half_life_ns,
        ..ratecap::Params::default()
    })
}
