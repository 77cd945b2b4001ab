//! Headroom controller while there is a batch group to limit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_policy::headroom::Controller;
use plimsoll_policy::sharing::{self, Sharer};

use super::INTERVAL;
use super::activity::nr_looks;
use super::batch_group::{BatchGroup, ControlledGroup};
use super::demand::params_of;
use crate::cgroup::BusyMeter;
use crate::cgroup::bandwidth::KERNEL_QUOTA_MIN_NS;
use crate::control::CoreClock;
use crate::error::{EngineError, Result};
use crate::host::nr_cpus_online;
use crate::knobs::HeadroomDemand;
use crate::sample::HeadroomSample;

/// Interval of the averages in the sample.
const AVERAGE_INTERVAL: Duration = Duration::from_secs(1);
/// Time before another attempt to control a group that could not be measured.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Largest number of active groups that are measured at once although they have used up their
/// quota.
const MEASURED_MAX: usize = 64;
/// Most batch work that is charged late to the core.
const UNCHARGED_MAX_NS: u64 = 100_000_000;
/// Most names in the sample.
const NAMES_MAX: usize = 32;

/// Sums over the time since the last averages.
#[derive(Debug, Default)]
struct Sums {
    elapsed_ns: u64,
    batch_ns: u64,
    nonbatch_ns: u64,
    allowance_ns: u64,
}

/// Group that cannot be controlled now, usually because its cgroup was removed.
#[derive(Debug)]
struct LostGroup {
    description: BatchGroup,
    since: Instant,
}

impl LostGroup {
    fn of(group: ControlledGroup, now: Instant) -> Self {
        Self {
            description: group.description,
            since: now,
        }
    }
}

#[derive(Debug)]
pub(super) struct RunningController {
    clock: CoreClock,
    /// Merged demand of all groups of the machine.
    demand: HeadroomDemand,
    controller: Controller,
    busy: BusyMeter,
    groups: Groups,
    account: Account,
    averages: Averages,
    /// Whether the demand or the number of CPUs may have changed since the parameters were set.
    is_changed: bool,
    nr_cpus: u32,
    sample: HeadroomSample,
}

#[derive(Debug)]
struct Groups {
    /// Groups measured at every update.
    active: Vec<ControlledGroup>,
    /// Groups measured in turns, the next one first.
    dormant: VecDeque<ControlledGroup>,
    lost: Vec<LostGroup>,
    /// Index of the active group at which the next turn begins.
    turn: usize,
    /// Most files to keep open.
    files_max: u64,
}

/// Work that was measured, but not told to the core yet, and the times of the last updates.
#[derive(Debug)]
struct Account {
    /// Measured work beyond what the CPUs can have run in its interval, to be counted in the next
    /// one.
    late_ns: u64,
    /// Batch work that was measured, but not charged to the core yet.
    uncharged_ns: u64,
    updated: Instant,
    /// Time, on the core's clock, when a group that had used up its quota last got another.
    returned_ns: u64,
}

/// Averages for people, and the time since the last ones.
#[derive(Debug)]
struct Averages {
    begun: Instant,
    sums: Sums,
    /// Shortfall of the controllers before this one.
    shortfall_usec: u64,
}

impl RunningController {
    /// Starts without groups. `counted`: counts of the controllers before this one, which are
    /// continued.
    pub fn start(
        hierarchy: &Arc<Hierarchy>,
        demand: HeadroomDemand,
        counted: &HeadroomSample,
        now: Instant,
    ) -> Result<Self> {
        let nr_cpus = nr_cpus_online();
        let params = params_of(&demand, nr_cpus);
        let controller = Controller::new(params, 0).map_err(|error| EngineError::Group {
            name: "headroom".into(),
            problem: error.to_string(),
        })?;
        Ok(Self {
            clock: CoreClock::starting_at(now),
            demand,
            controller,
            busy: BusyMeter::start(hierarchy)?,
            groups: Groups {
                active: Vec::new(),
                dormant: VecDeque::new(),
                lost: Vec::new(),
                turn: 0,
                files_max: files_max(),
            },
            account: Account {
                late_ns: 0,
                uncharged_ns: 0,
                updated: now,
                returned_ns: 0,
            },
            averages: Averages {
                begun: now,
                sums: Sums::default(),
                shortfall_usec: counted.headroom_shortfall_usec,
            },
            is_changed: true,
            nr_cpus,
            sample: HeadroomSample {
                nr_updates: counted.nr_updates,
                nr_writes: counted.nr_writes,
                controller_usec: counted.controller_usec,
                ..HeadroomSample::default()
            },
        })
    }

    pub fn set_demand(&mut self, demand: HeadroomDemand) {
        self.demand = demand;
        self.is_changed = true;
    }

    /// Adds a group that was not controlled before.
    pub fn keep(&mut self, group: &BatchGroup) {
        self.open(group.clone(), self.account.updated);
    }

    /// Replaces a group's parameters, or its cgroup.
    pub fn keep_changed(&mut self, group: &BatchGroup) {
        let known = self.take(&group.name);
        match known {
            Some(mut known) if known.description.group == group.group => {
                known.redescribe(group.clone(), self.account.updated);
                self.groups.active.push(known);
            }
            _ => self.open(group.clone(), self.account.updated),
        }
    }

    /// Removes a group: its quota is never written again.
    pub fn forget(&mut self, name: &str) {
        drop(self.take(name));
    }

    /// Removes a group from the loop and returns it, if it is controlled now.
    fn take(&mut self, name: &str) -> Option<ControlledGroup> {
        self.groups
            .lost
            .retain(|group| group.description.name != name);
        let is_it = |group: &ControlledGroup| group.description.name == name;
        if let Some(index) = self.groups.active.iter().position(is_it) {
            return Some(self.groups.active.swap_remove(index));
        }
        let index = self.groups.dormant.iter().position(is_it)?;
        self.groups.dormant.remove(index)
    }

    fn open(&mut self, description: BatchGroup, now: Instant) {
        match ControlledGroup::open(description.clone(), now) {
            Ok(group) => self.groups.active.push(group),
            Err(_) => self.groups.lost.push(LostGroup {
                description,
                since: now,
            }),
        }
    }

    /// Retries the groups that could not be controlled.
    fn retry_lost(&mut self, now: Instant) {
        let is_due =
            |group: &LostGroup| now.saturating_duration_since(group.since) >= RETRY_INTERVAL;
        let due: Vec<LostGroup> = self
            .groups
            .lost
            .extract_if(.., |group| is_due(group))
            .collect();
        for group in due {
            self.open(group.description, now);
        }
    }

    fn set_params(&mut self) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let nr_cpus = nr_cpus_online();
        let params = params_of(&self.demand, nr_cpus);
        // Out of range only beyond the core's own limit of 8192 CPUs.
        if self.controller.set(params).is_ok() {
            self.nr_cpus = nr_cpus;
        }
        // Reported at once, unlike the averaged shares.
        self.sample.headroom_ppm = self.controller.params().headroom_ppm;
    }

    /// Ends the interval since the last call.
    ///
    /// # Errors
    /// When the usage of the machine cannot be measured.
    pub fn tick(&mut self, now: Instant) -> Result<()> {
        let before_usec = thread_cpu_usec();
        let result = self.run(now);
        self.sample.controller_usec += thread_cpu_usec().saturating_sub(before_usec);
        result
    }

    fn run(&mut self, now: Instant) -> Result<()> {
        self.retry_lost(now);
        self.set_params();
        let elapsed = now.saturating_duration_since(self.account.updated);
        self.account.updated = now;
        let busy_ns = self.busy_ns(elapsed)?;
        let drowsy = self.measure_active(now);
        self.measure_dormant(elapsed, now);
        // Batch work that was measured late may exceed the machine's usage in this interval.
        let batch_ns = self.account.uncharged_ns.min(busy_ns);
        self.account.uncharged_ns = (self.account.uncharged_ns - batch_ns).min(UNCHARGED_MAX_NS);
        let nonbatch_ns = busy_ns - batch_ns;
        let now_ns = self.clock.at(now);
        self.controller.update(nonbatch_ns, batch_ns, now_ns);
        let shares = if self.controller.may_return(self.account.returned_ns) {
            self.shares(self.controller.return_ns())
        } else {
            self.rest_shares()
        };
        if self.write_shares(shares, now) {
            self.account.returned_ns = now_ns;
        }
        self.put_to_rest(drowsy, now);
        self.count(elapsed, nonbatch_ns, batch_ns);
        if now.saturating_duration_since(self.averages.begun) >= AVERAGE_INTERVAL {
            self.averages.begun = now;
            self.average();
        }
        Ok(())
    }

    /// Returns the CPU time that all work has used in this interval. The kernel counts a task that
    /// runs on another CPU at the next tick, so an interval that is no multiple of a tick may show
    /// more than the CPUs can have run. The core forgets the excess, so it is counted in the next
    /// interval.
    fn busy_ns(&mut self, elapsed: Duration) -> Result<u64> {
        let cpus_ns = |time: Duration| time.as_nanos() as u64 * u64::from(self.nr_cpus);
        let (most_ns, late_max_ns) = (cpus_ns(elapsed), cpus_ns(INTERVAL));
        let busy_ns = self.busy.busy_ns()? + self.account.late_ns;
        self.account.late_ns = busy_ns.saturating_sub(most_ns).min(late_max_ns);
        Ok(busy_ns.min(most_ns))
    }

    /// Measures the active groups: all with quota left, and of the others at most
    /// [`MEASURED_MAX`] at a time. Removes and returns those that are dormant from now on.
    fn measure_active(&mut self, now: Instant) -> Vec<ControlledGroup> {
        let nr_active = self.groups.active.len();
        let first = self.groups.turn % nr_active.max(1);
        self.groups.turn = if nr_active > MEASURED_MAX {
            first + MEASURED_MAX
        } else {
            0
        };
        let mut drowsy = Vec::new();
        let keep_open = files_of(nr_active) <= self.groups.files_max;
        for (index, mut group) in std::mem::take(&mut self.groups.active)
            .into_iter()
            .enumerate()
        {
            let distance = (index + nr_active - first) % nr_active;
            if distance >= MEASURED_MAX && group.is_hungry() {
                self.groups.active.push(group);
                continue;
            }
            let Ok(used_ns) = group.measure(keep_open) else {
                self.groups.lost.push(LostGroup::of(group, now));
                continue;
            };
            self.account.uncharged_ns += used_ns;
            let is_hungry = group.is_hungry();
            if group.activity.goes_idle(used_ns, is_hungry, now) {
                drowsy.push(group);
            } else {
                self.groups.active.push(group);
            }
        }
        drowsy
    }

    /// Measures the next dormant groups.
    fn measure_dormant(&mut self, elapsed: Duration, now: Instant) {
        let keep_open =
            files_of(self.groups.active.len() + self.groups.dormant.len()) <= self.groups.files_max;
        for _ in 0..nr_looks(self.groups.dormant.len(), elapsed) {
            let Some(mut group) = self.groups.dormant.pop_front() else {
                return;
            };
            let Ok(used_ns) = group.measure(keep_open) else {
                self.groups.lost.push(LostGroup::of(group, now));
                continue;
            };
            self.account.uncharged_ns += used_ns;
            if group.activity.wakes_up(used_ns, now) {
                self.groups.active.push(group);
            } else {
                self.groups.dormant.push_back(group);
            }
        }
    }

    /// Returns the part of the quota of each active group that it keeps until the next return:
    /// the rest, or less where all rests together are more than the core allows.
    fn rest_shares(&self) -> Vec<u64> {
        let claim = |group: &ControlledGroup| Sharer {
            want_ns: group.rest_ns(),
            ..group.claim()
        };
        let mut claims: Vec<Sharer> = self.groups.active.iter().map(claim).collect();
        let rest_ns = self.controller.rest_ns(self.account.returned_ns);
        sharing::split(&mut claims, rest_ns);
        claims.iter().map(|claim| claim.share_ns).collect()
    }

    /// Returns the share of the grant of each active group until the next return.
    fn shares(&mut self, grant_ns: u64) -> Vec<u64> {
        let active = &mut self.groups.active;
        let mut claims: Vec<Sharer> = active.iter().map(ControlledGroup::claim).collect();
        sharing::share(&mut claims, grant_ns);
        for (group, claim) in active.iter_mut().zip(&claims) {
            group.take(claim);
        }
        claims.iter().map(|claim| claim.share_ns).collect()
    }

    /// Writes the quotas. A group whose quota cannot be written keeps its old one and is tried
    /// again; the others are written all the same. Returns whether a group that had used up its
    /// quota got a share.
    fn write_shares(&mut self, shares: Vec<u64>, now: Instant) -> bool {
        let keep_open = files_of(self.groups.active.len()) <= self.groups.files_max;
        let mut any_returns = false;
        for (group, share_ns) in self.groups.active.iter_mut().zip(shares) {
            let returns = group.is_hungry() && share_ns >= KERNEL_QUOTA_MIN_NS;
            if let Some(quota_ns) = group.next_quota_ns(share_ns, now)
                && group.write(quota_ns, keep_open, now).is_ok()
            {
                self.sample.nr_writes += 1;
                any_returns |= returns;
            }
        }
        any_returns
    }

    /// Makes groups dormant, with the smallest quota.
    fn put_to_rest(&mut self, drowsy: Vec<ControlledGroup>, now: Instant) {
        for mut group in drowsy {
            let is_written = match group.last_quota_ns() {
                None => true,
                Some(quota_ns) => {
                    let wrote = group.write(quota_ns, false, now).is_ok();
                    self.sample.nr_writes += u64::from(wrote);
                    wrote
                }
            };
            if is_written {
                group.rest();
                self.groups.dormant.push_back(group);
            } else {
                self.groups.active.push(group);
            }
        }
    }

    fn count(&mut self, elapsed: Duration, nonbatch_ns: u64, batch_ns: u64) {
        self.averages.sums.elapsed_ns += u64::try_from(elapsed.as_nanos()).unwrap_or(0);
        self.averages.sums.batch_ns += batch_ns;
        self.averages.sums.nonbatch_ns += nonbatch_ns;
        self.averages.sums.allowance_ns += self.controller.allowance_ns();
        self.sample.nr_updates += 1;
    }

    fn average(&mut self) {
        // The number of CPUs may have changed.
        self.is_changed = true;
        let sums = std::mem::take(&mut self.averages.sums);
        let capacity_ns = (sums.elapsed_ns * u64::from(self.nr_cpus)).max(1);
        let ppm = |part_ns: u64| part_ns.saturating_mul(1_000_000) / capacity_ns;
        self.sample.headroom_ppm = self.controller.params().headroom_ppm;
        self.sample.allowance_ppm = ppm(sums.allowance_ns);
        self.sample.side_ppm = ppm(sums.batch_ns);
        self.sample.nonside_ppm = ppm(sums.nonbatch_ns);
        self.sample.headroom_shortfall_usec =
            self.averages.shortfall_usec + self.controller.shortfall_ns() / 1000;
        let groups = self.groups.active.iter().chain(&self.groups.dormant);
        let mut names: Vec<&str> = groups
            .map(|group| group.description.name.as_str())
            .collect();
        names.sort_unstable();
        self.sample.nr_sides = names.len() as u64;
        names.truncate(NAMES_MAX);
        self.sample.sides = names.into_iter().map(str::to_owned).collect();
    }

    pub fn is_busy(&self) -> bool {
        !self.groups.active.is_empty()
    }

    pub fn sample(&self) -> HeadroomSample {
        self.sample.clone()
    }
}

/// Half of the process's limit of open files.
fn files_max() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(now, _)| now / 2)
}

/// Number of open files of `nr_groups` groups: usage and quota.
fn files_of(nr_groups: usize) -> u64 {
    2 * nr_groups as u64
}

fn thread_cpu_usec() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    u64::try_from(time.unwrap_or_default().as_micros()).unwrap_or(0)
}
