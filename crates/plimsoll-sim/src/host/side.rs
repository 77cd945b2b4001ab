//! How much batch work may run now: headroom in its two forms, and the
//! tolerance that keeps batch work alive.

use plimsoll_engine::knobs::{Demand, Headroom, Tolerance};
use plimsoll_policy::headroom::{self, Controller, Params};
use plimsoll_policy::{NSEC_PER_MSEC, PPM};

use crate::scenario::Scenario;

use super::HostError;
use super::engine::Host;
use super::observe::{Event, Observer};
use super::task::NONE;

/// How often the allowance is looked at, as the scheduler in the kernel does.
pub(super) const GRAIN_NS: u64 = NSEC_PER_MSEC;
/// What is left of a grant is not handed out in smaller pieces: a change of
/// tasks would cost more than it brings.
const PIECE_MIN_NS: u64 = 100_000;

/// The demand of all groups together, and how it is kept.
#[derive(Debug)]
pub(super) struct Side {
    /// Keeps the law. Without headroom there is none.
    controller: Option<Controller>,
    /// So many CPUs are to be idle at every instant.
    pub(super) idle_cpus: u32,
    /// Of the grant, not handed out yet.
    budget_ns: u64,
    /// The end of the present grain.
    pub(super) grain_end_ns: u64,
    /// What batch work may run in a period behind normal work.
    pub(super) tolerance_runtime_ns: u64,
    pub(super) tolerance_period_ns: u64,
    /// What batch work ran beyond its tolerance and has not paid for yet with a
    /// shorter turn. At most a whole turn.
    overrun_ns: u64,
    pub(super) headroom_ppm: u32,
    /// Shortfall up to the end of the warm-up.
    shortfall_before_ns: u64,
    /// Totals at the last update.
    normal_ns: u64,
    batch_ns: u64,
}

impl Side {
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
        // With a number of CPUs, the instant decides. The controller then
        // only hands out the tolerance.
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

    /// Closes a grain, up to whose end normal and batch work ran so much in
    /// all. Returns the new grant.
    pub(super) fn update(&mut self, normal_ns: u64, batch_ns: u64, now_ns: u64) -> u64 {
        let Some(controller) = &mut self.controller else {
            return 0;
        };
        let nonside_ns = normal_ns - self.normal_ns;
        let side_ns = batch_ns - self.batch_ns;
        (self.normal_ns, self.batch_ns) = (normal_ns, batch_ns);
        self.budget_ns = controller.update(nonside_ns, side_ns, now_ns);
        self.grain_end_ns = now_ns + GRAIN_NS;
        self.budget_ns
    }

    /// Whether batch work may start on a CPU while `idle` others are idle.
    pub(super) fn has_room(&self, idle: u32, now_ns: u64) -> bool {
        if self.controller.is_none() || self.idle_cpus > 0 && idle >= self.idle_cpus {
            return true;
        }
        self.piece_ns(now_ns) > 0
    }

    /// On how many CPUs batch work may start at most, while `idle` of them are.
    pub(super) fn nr_places(&self, idle: u32, now_ns: u64) -> u32 {
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

    /// Until when batch work may run on a CPU while `idle` others are idle.
    pub(super) fn take(&mut self, idle: u32, now_ns: u64) -> u64 {
        if self.controller.is_none() || self.idle_cpus > 0 && idle >= self.idle_cpus {
            return u64::MAX;
        }
        let piece_ns = self.piece_ns(now_ns);
        self.budget_ns -= piece_ns;
        now_ns + piece_ns
    }

    /// Gives back what is left of what was taken until `until_ns`.
    pub(super) fn give_back(&mut self, until_ns: u64, now_ns: u64) {
        if until_ns != u64::MAX && until_ns <= self.grain_end_ns {
            self.budget_ns += until_ns.saturating_sub(now_ns);
        }
    }

    /// How long the turn that is due may be, after a period of the tolerance in
    /// which batch work ran `ran_ns`. 0: it is skipped.
    fn next_turn_ns(&mut self, ran_ns: u64) -> u64 {
        let turn_ns = self.tolerance_runtime_ns;
        let overrun_ns = (self.overrun_ns + ran_ns).saturating_sub(turn_ns);
        self.overrun_ns = overrun_ns.min(turn_ns);
        turn_ns - self.overrun_ns
    }

    /// The clock has counted `missing_ns` of missing idle CPUs so far.
    pub(super) fn begin_measuring(&mut self, missing_ns: u64) {
        self.shortfall_before_ns = self.shortfall_in_all_ns(missing_ns).unwrap_or(0);
    }

    pub(super) fn shortfall_ns(&self, missing_ns: u64) -> Option<u64> {
        self.shortfall_in_all_ns(missing_ns)
            .map(|in_all_ns| in_all_ns - self.shortfall_before_ns)
    }

    /// With a number of CPUs the controller knows of none that are missing: it
    /// is asked for all of them.
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
    /// Where so many CPUs are to be idle: how many are missing while batch work
    /// runs that has more than its tolerance.
    pub(super) fn look_for_missing_cpus(&mut self) {
        let missing_cpus = self.side.idle_cpus.saturating_sub(self.idle.count());
        self.clock.missing_cpus = if missing_cpus > 0 && self.batch_is_above_tolerance() {
            missing_cpus
        } else {
            0
        };
    }

    /// Whether a CPU runs batch work that is neither on a turn nor on a grant.
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

    /// A grain of the headroom controller is over.
    pub(super) fn grain_ends(&mut self) {
        let now_ns = self.clock.now_ns;
        let (normal_ns, batch_ns) = (self.clock.normal_ns, self.clock.batch_ns);
        let grant_ns = self.side.update(normal_ns, batch_ns, now_ns);
        self.observer.happened(now_ns, Event::Granted { grant_ns });
        self.timers.set(self.owners.grain(), now_ns + GRAIN_NS);
        self.rotation = self.rotation.wrapping_add(1);
        self.deal_grant();
        self.rouse_idle_cpus();
    }

    /// CPUs that run batch work get their pieces of the new grant, in turn.
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
            if own.batch_until_ns == u64::MAX || own.turn_end_ns > now_ns {
                continue;
            }
            // The end of a turn is normal work's, whatever the new grant.
            if own.batch_until_ns == own.turn_end_ns {
                self.must_choose(cpu);
                continue;
            }
            let until_ns = self.side.take(self.idle.count(), now_ns);
            own.batch_until_ns = until_ns;
            if until_ns > now_ns {
                self.set_timer(cpu);
            } else {
                self.must_choose(cpu);
            }
        }
    }

    /// Batch work that normal work keeps from running gets a turn.
    pub(super) fn turn_is_due(&mut self) {
        let now_ns = self.clock.now_ns;
        let period_ns = self.side.tolerance_period_ns;
        self.timers.set(self.owners.turn(), now_ns + period_ns);
        let ran_ns = self.clock.batch_ns - self.batch_at_turn_ns;
        self.batch_at_turn_ns = self.clock.batch_ns;
        let turn_ns = self.side.next_turn_ns(ran_ns);
        if self.clock.nr_batch() > 0 || turn_ns == 0 {
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
        own.turn_end_ns = now_ns + turn_ns;
        own.give_way = true;
        self.must_choose(cpu);
    }
}
