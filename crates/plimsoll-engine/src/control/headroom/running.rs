//! The controller, while there is any batch group to limit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_policy::headroom::{Controller, Side};

use super::activity::nr_looks;
use super::demand::params_of;
use super::share;
use super::side::{ControlledSide, SideDescription};
use crate::cgroup::BusyMeter;
use crate::control::CoreClock;
use crate::enforcer::HeadroomSample;
use crate::error::{EngineError, Result};
use crate::host::nr_cpus_online;

/// How often the averages of the sample are taken.
const AVERAGE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a side that could not be measured is left alone.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// No more of the active sides that only wait for room are measured at once.
const MEASURED_MAX: usize = 64;
/// No more side work is remembered that was measured late.
const UNBOOKED_MAX_NS: u64 = 100_000_000;
/// No more names are in the sample.
const NAMES_MAX: usize = 32;

/// Sums over the time since the last averages.
#[derive(Debug, Default)]
struct Sums {
    elapsed_ns: u64,
    side_ns: u64,
    nonside_ns: u64,
    allowance_ns: u64,
}

/// A side that cannot be controlled now: its cgroup was removed, mostly.
#[derive(Debug)]
struct LostSide {
    description: SideDescription,
    since: Instant,
}

impl LostSide {
    fn of(side: ControlledSide, now: Instant) -> Self {
        Self {
            description: side.description,
            since: now,
        }
    }
}

/// The controller.
#[derive(Debug)]
pub(super) struct Running {
    hierarchy: Arc<Hierarchy>,
    clock: CoreClock,
    controller: Controller,
    busy: BusyMeter,
    /// Measured every time.
    active: Vec<ControlledSide>,
    /// Looked at in turns, the first is the next.
    dormant: VecDeque<ControlledSide>,
    lost: Vec<LostSide>,
    /// Sides have come, gone or changed since the parameters were set.
    is_changed: bool,
    /// Where the turn of the active sides that wait begins.
    turn: usize,
    /// Side work that was measured, but not told to the core yet.
    unbooked_ns: u64,
    nr_cpus: u32,
    /// No more of this process's files are kept open.
    files_max: u64,
    updated: Instant,
    averaged: Instant,
    sums: Sums,
    /// Of the controllers before it.
    shortfall_usec: u64,
    sample: HeadroomSample,
}

impl Running {
    /// Starts without any side. `counted`: the counts of the controllers before it, from where
    /// it goes on.
    pub fn start(
        hierarchy: &Arc<Hierarchy>,
        counted: &HeadroomSample,
        now: Instant,
    ) -> Result<Self> {
        let nr_cpus = nr_cpus_online();
        let params = params_of(std::iter::empty(), nr_cpus);
        let controller = Controller::new(params, 0).map_err(|error| EngineError::Control {
            name: "headroom".into(),
            problem: error.to_string(),
        })?;
        Ok(Self {
            hierarchy: Arc::clone(hierarchy),
            clock: CoreClock::starting_at(now),
            controller,
            busy: BusyMeter::start(hierarchy)?,
            active: Vec::new(),
            dormant: VecDeque::new(),
            lost: Vec::new(),
            is_changed: true,
            turn: 0,
            unbooked_ns: 0,
            nr_cpus,
            files_max: files_max(),
            updated: now,
            averaged: now,
            sums: Sums::default(),
            shortfall_usec: counted.headroom_shortfall_usec,
            sample: HeadroomSample {
                nr_updates: counted.nr_updates,
                nr_writes: counted.nr_writes,
                controller_usec: counted.controller_usec,
                ..HeadroomSample::default()
            },
        })
    }

    /// Controls a side that it has not controlled before.
    pub fn keep(&mut self, side: &SideDescription) {
        self.is_changed = true;
        self.open(side.clone(), self.updated);
    }

    /// Follows a change of a side.
    pub fn keep_changed(&mut self, side: &SideDescription) {
        let known = self.take(&side.name);
        match known {
            Some(mut known) if known.description.group == side.group => {
                known.redescribe(side.clone(), self.updated);
                self.active.push(known);
            }
            _ => self.open(side.clone(), self.updated),
        }
    }

    /// Never writes the quota of that side again.
    pub fn forget(&mut self, name: &str) {
        drop(self.take(name));
    }

    /// Takes a side out of the loop, if it is controlled now.
    fn take(&mut self, name: &str) -> Option<ControlledSide> {
        self.is_changed = true;
        self.lost.retain(|side| side.description.name != name);
        let is_it = |side: &ControlledSide| side.description.name == name;
        if let Some(index) = self.active.iter().position(is_it) {
            return Some(self.active.swap_remove(index));
        }
        let index = self.dormant.iter().position(is_it)?;
        self.dormant.remove(index)
    }

    fn open(&mut self, description: SideDescription, now: Instant) {
        match ControlledSide::open(&self.hierarchy, description.clone(), now) {
            Ok(side) => self.active.push(side),
            Err(_) => self.lost.push(LostSide {
                description,
                since: now,
            }),
        }
    }

    /// Tries the sides again that could not be controlled.
    fn retry_lost(&mut self, now: Instant) {
        let is_due = |side: &LostSide| now.saturating_duration_since(side.since) >= RETRY_INTERVAL;
        let due: Vec<LostSide> = self.lost.extract_if(.., |side| is_due(side)).collect();
        for side in due {
            self.open(side.description, now);
            self.is_changed = true;
        }
    }

    /// Sets what the sides ask for together, if that may have changed.
    fn set_params(&mut self) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let nr_cpus = nr_cpus_online();
        let sides = self.active.iter().chain(&self.dormant);
        let params = params_of(sides.map(|side| &side.description), nr_cpus);
        // Only out of range where the core's own limits are: 8192 CPUs.
        if self.controller.set(params).is_ok() {
            self.nr_cpus = nr_cpus;
        }
        // Known at once; measured shares are averaged first.
        self.sample.headroom_ppm = self.controller.params().headroom_ppm;
    }

    /// Closes the interval since the last call.
    ///
    /// # Errors
    /// When the machine's use cannot be measured.
    pub fn tick(&mut self, now: Instant) -> Result<()> {
        let before_usec = thread_cpu_usec();
        let result = self.run(now);
        self.sample.controller_usec += thread_cpu_usec().saturating_sub(before_usec);
        result
    }

    fn run(&mut self, now: Instant) -> Result<()> {
        self.retry_lost(now);
        self.set_params();
        let elapsed = now.saturating_duration_since(self.updated);
        self.updated = now;
        let busy_ns = self.busy.busy_ns()?;
        let drowsy = self.measure_active(now);
        self.look_at_dormant(elapsed, now);
        // What was measured late may be more than the machine did just now.
        let side_ns = self.unbooked_ns.min(busy_ns);
        self.unbooked_ns = (self.unbooked_ns - side_ns).min(UNBOOKED_MAX_NS);
        let nonside_ns = busy_ns - side_ns;
        let now_ns = self.clock.at(now);
        let grant_ns = self.controller.update(nonside_ns, side_ns, now_ns);
        self.write_quotas(grant_ns, drowsy, now);
        self.count(elapsed, nonside_ns, side_ns);
        if now.saturating_duration_since(self.averaged) >= AVERAGE_INTERVAL {
            self.averaged = now;
            self.average();
        }
        Ok(())
    }

    /// Measures the active sides: all that have room to run in, and of those
    /// that wait for it so many at a time. Takes out those that are dormant
    /// from now on.
    fn measure_active(&mut self, now: Instant) -> Vec<ControlledSide> {
        let nr_active = self.active.len();
        let first = self.turn % nr_active.max(1);
        self.turn = if nr_active > MEASURED_MAX {
            first + MEASURED_MAX
        } else {
            0
        };
        let mut drowsy = Vec::new();
        let keep_open = files_of(nr_active) <= self.files_max;
        for (index, mut side) in std::mem::take(&mut self.active).into_iter().enumerate() {
            let place = (index + nr_active - first) % nr_active;
            if place >= MEASURED_MAX && side.is_hungry() {
                self.active.push(side);
                continue;
            }
            let Ok(used_ns) = side.measure(keep_open) else {
                self.lost.push(LostSide::of(side, now));
                continue;
            };
            self.unbooked_ns += used_ns;
            let is_hungry = side.is_hungry();
            if side.activity.falls_asleep(used_ns, is_hungry, now) {
                drowsy.push(side);
            } else {
                self.active.push(side);
            }
        }
        drowsy
    }

    /// Looks at those dormant sides whose turn it is.
    fn look_at_dormant(&mut self, elapsed: Duration, now: Instant) {
        let keep_open = files_of(self.active.len() + self.dormant.len()) <= self.files_max;
        for _ in 0..nr_looks(self.dormant.len(), elapsed) {
            let Some(mut side) = self.dormant.pop_front() else {
                return;
            };
            let Ok(used_ns) = side.measure(keep_open) else {
                self.lost.push(LostSide::of(side, now));
                continue;
            };
            self.unbooked_ns += used_ns;
            if side.activity.wakes_up(used_ns, now) {
                self.active.push(side);
            } else {
                self.dormant.push_back(side);
            }
        }
    }

    /// What each active side may run until the next time.
    fn shares(&mut self, grant_ns: u64) -> Vec<u64> {
        let claim = |side: &ControlledSide| Side {
            want_ns: side.want_ns(),
            share_ns: 0,
            weight: side.description.weight,
        };
        let mut claims: Vec<Side> = self.active.iter().map(claim).collect();
        let debts_ns: u64 = self.active.iter().map(|side| side.debt_ns).sum();
        let modest = self.active.iter().map(|side| side.modest_want_ns());
        let modest_ns: Vec<u64> = modest.collect();
        share::share_out(&mut claims, &modest_ns, grant_ns.saturating_add(debts_ns));
        let debts = self.active.iter_mut().map(|side| &mut side.debt_ns);
        share::pay_debts(claims.iter_mut().zip(debts).collect(), grant_ns);
        let waiting = self.active.iter_mut().map(|side| &mut side.waited_ns);
        share::pool_small_shares(claims.iter_mut().zip(waiting).collect());
        claims.iter().map(|claim| claim.share_ns).collect()
    }

    /// A side that refuses its quota keeps the one that it has, and does not
    /// keep the others from theirs: it is tried again.
    fn write_quotas(&mut self, grant_ns: u64, drowsy: Vec<ControlledSide>, now: Instant) {
        let shares = self.shares(grant_ns);
        let keep_open = files_of(self.active.len()) <= self.files_max;
        for (side, share_ns) in self.active.iter_mut().zip(shares) {
            if let Some(quota_ns) = side.next_quota_ns(share_ns, now)
                && side.write(quota_ns, keep_open, now).is_ok()
            {
                self.sample.nr_writes += 1;
            }
        }
        for mut side in drowsy {
            let is_settled = match side.last_quota_ns() {
                None => true,
                Some(quota_ns) => {
                    let wrote = side.write(quota_ns, false, now).is_ok();
                    self.sample.nr_writes += u64::from(wrote);
                    wrote
                }
            };
            if is_settled {
                side.rest();
                self.dormant.push_back(side);
            } else {
                self.active.push(side);
            }
        }
    }

    fn count(&mut self, elapsed: Duration, nonside_ns: u64, side_ns: u64) {
        self.sums.elapsed_ns += u64::try_from(elapsed.as_nanos()).unwrap_or(0);
        self.sums.side_ns += side_ns;
        self.sums.nonside_ns += nonside_ns;
        self.sums.allowance_ns += self.controller.allowance_ns();
        self.sample.nr_updates += 1;
    }

    fn average(&mut self) {
        // CPUs come and go.
        self.is_changed = true;
        let sums = std::mem::take(&mut self.sums);
        let capacity_ns = (sums.elapsed_ns * u64::from(self.nr_cpus)).max(1);
        let ppm = |part_ns: u64| part_ns.saturating_mul(1_000_000) / capacity_ns;
        self.sample.headroom_ppm = self.controller.params().headroom_ppm;
        self.sample.allowance_ppm = ppm(sums.allowance_ns);
        self.sample.side_ppm = ppm(sums.side_ns);
        self.sample.nonside_ppm = ppm(sums.nonside_ns);
        self.sample.headroom_shortfall_usec =
            self.shortfall_usec + self.controller.shortfall_ns() / 1000;
        let sides = self.active.iter().chain(&self.dormant);
        let mut names: Vec<&str> = sides.map(|side| side.description.name.as_str()).collect();
        names.sort_unstable();
        self.sample.nr_sides = names.len() as u64;
        names.truncate(NAMES_MAX);
        self.sample.sides = names.into_iter().map(str::to_owned).collect();
    }

    /// Whether any side has to be measured every time.
    pub fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// What the controller says of itself.
    pub fn sample(&self) -> HeadroomSample {
        self.sample.clone()
    }
}

/// Half of the files that this process may have open.
fn files_max() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(now, _)| now / 2)
}

/// Of so many sides usage and quota.
fn files_of(nr_sides: usize) -> u64 {
    2 * nr_sides as u64
}

/// CPU time of the calling thread.
fn thread_cpu_usec() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    u64::try_from(time.unwrap_or_default().as_micros()).unwrap_or(0)
}
