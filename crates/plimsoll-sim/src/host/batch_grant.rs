//! Grant of CPU time to batch work: headroom in its two forms, and the tolerance that keeps batch
//! work alive.

use plimsoll_engine::knobs::{Demand, Headroom, Tolerance};
use plimsoll_policy::headroom::{self, Controller, Params};
use plimsoll_policy::{NSEC_PER_MSEC, PPM};

use crate::scenario::Scenario;

use super::HostError;
use super::engine::Host;
use super::observe::{Event, Observer};
use super::task::NONE;

/// Interval of updates of the grant, the same as of the scheduler in the kernel.
pub(super) const GRAIN_NS: u64 = NSEC_PER_MSEC;
/// Smallest piece of a grant: with smaller ones, a task switch would cost more than it gains.
const PIECE_MIN_NS: u64 = 100_000;

/// The merged demand of all groups, and the grant under it.
#[derive(Debug)]
pub(super) struct BatchGrant {
    /// The controller; none without headroom.
    controller: Option<Controller>,
    /// Number of CPUs to keep idle at every instant.
    pub(super) idle_cpus: u32,
    /// Rest of the grant that is not taken yet.
    budget_ns: u64,
    /// The end of the present grain.
    pub(super) grain_end_ns: u64,
    /// Tolerance: run time of batch work in a period behind normal work.
    pub(super) tolerance_runtime_ns: u64,
    pub(super) tolerance_period_ns: u64,
    /// Run time of batch work beyond its tolerance that is not paid yet by a shorter server slice.
    /// At most a whole slice.
    overrun_ns: u64,
    pub(super) headroom_ppm: u32,
    /// Shortfall up to the end of the warm-up.
    shortfall_before_ns: u64,
    /// Totals at the last update.
    normal_ns: u64,
    batch_ns: u64,
}

impl BatchGrant {
    pub(super) fn new(scenario: &Scenario) -> Result<Self, HostError> {
        let cpus = scenario.machine.cpus;
        let demand: Demand = scenario.groups.iter().map(|group| &group.knobs).collect();
        let asked = demand.in_force(cpus);
        let Tolerance {
            runtime_ns,
            period_ns,
        } = demand.tolerance();
        let idle_cpus = match asked {
            Some(Headroom::Cpus(count)) => count.min(cpus),
            _ => 0,
        };
        let headroom_ppm = asked.map_or(0, |asked| asked.share_ppm(cpus));
        // With a number of CPUs, the idle CPUs at each instant decide. The controller then only
        // grants the tolerance.
        let kept_ppm = if idle_cpus > 0 {
            PPM as u32
        } else {
            headroom_ppm
        };
        let controller = asked
            .map(|_| {
                let params = Params {
                    window_ns: headroom::WINDOW_DEFAULT_NS,
                    grain_ns: GRAIN_NS,
                    tolerance_runtime_ns: runtime_ns,
                    tolerance_period_ns: period_ns,
                    headroom_ppm: kept_ppm,
                    nr_cpus: cpus,
                };
                Controller::new(params, 0)
            })
            .transpose()
            .map_err(|error| HostError::Headroom(error.to_string()))?;
        Ok(Self {
            controller,
            idle_cpus,
            budget_ns: 0,
            grain_end_ns: 0,
            tolerance_runtime_ns: runtime_ns,
            tolerance_period_ns: period_ns,
            overrun_ns: 0,
            headroom_ppm,
            shortfall_before_ns: 0,
            normal_ns: 0,
            batch_ns: 0,
        })
    }

    pub(super) fn is_limited(&self) -> bool {
        self.controller.is_some()
    }

    /// Ends a grain, given the total CPU time of normal and batch work up to now. Returns the new
    /// grant.
    pub(super) fn update(&mut self, normal_ns: u64, batch_ns: u64, now_ns: u64) -> u64 {
        let Some(controller) = &mut self.controller else {
            return 0;
        };
        let nonbatch_ns = normal_ns - self.normal_ns;
        let batch_used_ns = batch_ns - self.batch_ns;
        (self.normal_ns, self.batch_ns) = (normal_ns, batch_ns);
        self.budget_ns = controller.update(nonbatch_ns, batch_used_ns, now_ns);
        self.grain_end_ns = now_ns + GRAIN_NS;
        self.budget_ns
    }

    /// Whether batch work may start on a CPU while `idle` others are idle.
    pub(super) fn may_start(&self, idle: u32, now_ns: u64) -> bool {
        if self.controller.is_none() || self.idle_cpus > 0 && idle >= self.idle_cpus {
            return true;
        }
        self.piece_ns(now_ns) > 0
    }

    /// Largest number of CPUs on which batch work may start, while `idle` of them are idle.
    pub(super) fn nr_tokens(&self, idle: u32, now_ns: u64) -> u32 {
        if self.controller.is_none() {
            return u32::MAX;
        }
        let left_ns = self.grain_end_ns.saturating_sub(now_ns).max(1);
        let pieces = self.budget_ns.div_ceil(left_ns);
        let beyond = match self.idle_cpus {
            0 => 0,
            idle_cpus => idle.saturating_sub(idle_cpus),
        };
        beyond.saturating_add(u32::try_from(pieces).unwrap_or(u32::MAX))
    }

    fn piece_ns(&self, now_ns: u64) -> u64 {
        let left_ns = self.grain_end_ns.saturating_sub(now_ns);
        let piece_ns = left_ns.min(self.budget_ns);
        if piece_ns < PIECE_MIN_NS && piece_ns < left_ns {
            return 0;
        }
        piece_ns
    }

    /// Takes a piece of the grant. Returns until when batch work may run on a CPU while `idle`
    /// others are idle.
    pub(super) fn take(&mut self, idle: u32, now_ns: u64) -> u64 {
        if self.controller.is_none() || self.idle_cpus > 0 && idle >= self.idle_cpus {
            return u64::MAX;
        }
        let piece_ns = self.piece_ns(now_ns);
        self.budget_ns -= piece_ns;
        now_ns + piece_ns
    }

    /// Returns the rest of a piece that was taken until `until_ns`.
    pub(super) fn give_back(&mut self, until_ns: u64, now_ns: u64) {
        if until_ns != u64::MAX && until_ns <= self.grain_end_ns {
            self.budget_ns += until_ns.saturating_sub(now_ns);
        }
    }

    /// Length of the due server slice, after a period of the tolerance in which batch work ran for
    /// `ran_ns`. 0: it is skipped.
    fn next_server_slice_ns(&mut self, ran_ns: u64) -> u64 {
        let slice_ns = self.tolerance_runtime_ns;
        let overrun_ns = (self.overrun_ns + ran_ns).saturating_sub(slice_ns);
        self.overrun_ns = overrun_ns.min(slice_ns);
        slice_ns - self.overrun_ns
    }

    /// Ends the warm-up, up to which `missing_ns` of missing idle CPUs were counted.
    pub(super) fn begin_measuring(&mut self, missing_ns: u64) {
        self.shortfall_before_ns = self.shortfall_in_all_ns(missing_ns).unwrap_or(0);
    }

    pub(super) fn shortfall_ns(&self, missing_ns: u64) -> Option<u64> {
        self.shortfall_in_all_ns(missing_ns)
            .map(|in_all_ns| in_all_ns - self.shortfall_before_ns)
    }

    /// Total shortfall. With a number of CPUs the controller does not count missing CPUs, because
    /// its headroom is the whole machine.
    fn shortfall_in_all_ns(&self, missing_ns: u64) -> Option<u64> {
        let controller = self.controller.as_ref()?;
        Some(if self.idle_cpus > 0 {
            missing_ns
        } else {
            controller.shortfall_ns()
        })
    }
}

impl<O: Observer> Host<O> {
    /// Updates the number of idle CPUs that are missing while batch work runs above its tolerance,
    /// if headroom demands a number of CPUs.
    pub(super) fn update_missing_cpus(&mut self) {
        let missing_cpus = self.batch_grant.idle_cpus.saturating_sub(self.idle.count());
        self.clock.missing_cpus = if missing_cpus > 0 && self.batch_is_above_tolerance() {
            missing_cpus
        } else {
            0
        };
    }

    /// Whether a CPU runs batch work that is neither in a server slice nor within the grant.
    fn batch_is_above_tolerance(&self) -> bool {
        let mut from = 0;
        while let Some(cpu) = self.batch_on.next_within(from, from, self.machine.cpus) {
            if self.cpus[cpu as usize].batch_until_ns == u64::MAX {
                return true;
            }
            from = cpu + 1;
        }
        false
    }

    /// Ends a grain of the headroom controller.
    pub(super) fn grain_ends(&mut self) {
        let now_ns = self.clock.now_ns;
        let (normal_ns, batch_ns) = (self.clock.normal_ns, self.clock.batch_ns);
        let grant_ns = self.batch_grant.update(normal_ns, batch_ns, now_ns);
        self.observer.happened(now_ns, Event::Granted { grant_ns });
        self.timers.set(self.owners.grain(), now_ns + GRAIN_NS);
        self.rotation = self.rotation.wrapping_add(1);
        self.deal_grant();
        self.rouse_idle_cpus();
    }

    /// Gives CPUs that run batch work their pieces of the new grant, in rotation.
    fn deal_grant(&mut self) {
        let now_ns = self.clock.now_ns;
        let cpus = self.machine.cpus;
        let first = self.rotation % cpus;
        let mut nr_left = self.batch_on.count();
        let mut from = first;
        while nr_left > 0 {
            let Some(cpu) = self.batch_on.next_from(from) else {
                break;
            };
            nr_left -= 1;
            from = (cpu + 1) % cpus;
            let own = &mut self.cpus[cpu as usize];
            if own.batch_until_ns == u64::MAX || own.server_end_ns > now_ns {
                continue;
            }
            // After a server slice normal work runs, regardless of the new grant.
            if own.batch_until_ns == own.server_end_ns {
                self.must_choose(cpu);
                continue;
            }
            let until_ns = self.batch_grant.take(self.idle.count(), now_ns);
            own.batch_until_ns = until_ns;
            if until_ns > now_ns {
                self.set_timer(cpu);
            } else {
                self.must_choose(cpu);
            }
        }
    }

    /// Starts a server slice for batch work that waits behind normal work.
    pub(super) fn server_slice_due(&mut self) {
        let now_ns = self.clock.now_ns;
        let period_ns = self.batch_grant.tolerance_period_ns;
        self.timers.set(self.owners.server(), now_ns + period_ns);
        let ran_ns = self.clock.batch_ns - self.batch_at_server_ns;
        self.batch_at_server_ns = self.clock.batch_ns;
        let slice_ns = self.batch_grant.next_server_slice_ns(ran_ns);
        if self.clock.nr_batch() > 0 || slice_ns == 0 {
            return;
        }
        let cpus = self.machine.cpus;
        self.rotation = self.rotation.wrapping_add(1);
        let first = self.rotation % cpus;
        let waits =
            |cpu: &u32| self.batch_waits_at(*cpu) && self.cpus[*cpu as usize].current != NONE;
        let Some(cpu) = (first..cpus).chain(0..first).find(waits) else {
            return;
        };
        let own = &mut self.cpus[cpu as usize];
        own.server_end_ns = now_ns + slice_ns;
        own.give_way = true;
        self.must_choose(cpu);
    }
}
