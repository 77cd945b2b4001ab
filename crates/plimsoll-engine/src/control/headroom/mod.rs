//! The headroom controller on stock knobs.
//!
//! Every 10 ms the controller measures the usage of batch work and of all other work, lets the core
//! grant CPU time to batch work, and writes the grant as the quotas of the batch groups. Writing a
//! quota refills the kernel's pool at once, so the loop itself is the refill. The period is the
//! longest there is (1 s): if the loop stops, a batch group gets no more than one such quota per
//! second.
//!
//! Groups that have used up their quotas return together, once in 40 ms or when the
//! core says so; in between quotas are only cut. Where a batch task returns while a normal
//! one is on that CPU, the kernel may run it for a millisecond first
//! (docs/stock-kernels.md).
//!
//! # Thousands of batch groups
//!
//! Most batch groups do nothing most of the time. One that used less than 50 µs in 200 ms, and was
//! not throttled, becomes *dormant*: it keeps the smallest quota that the kernel accepts, 1 ms a
//! second, and gets no share of the grant. With n dormant groups, each is measured once within n
//! ms, but all within no less than 200 ms and no more than a second: n / 20 of up to 200 groups
//! every 10 ms, 10 of up to 1,000 groups, and n / 100 of more. A dormant group that has used 250 µs
//! within a second is active again. While all are dormant the loop runs every 50 ms, and measures
//! five times as many. So
//!
//! - a batch group that wakes up is measured, and gets a share if there is one,
//!   within 200 ms (up to 200 dormant groups) or a second, and 50 ms;
//! - until then it has run no more than its quota, 1 ms a second besides the
//!   1 ms in its pool. That time counts as other work until it is measured.
//!   Then it is charged to the core as batch work, as soon as the machine has
//!   been used for as long: the law is kept for all work together at any time.
//!
//! Active groups are measured at every update. Where more than 64 are active,
//! those that have used up their quota, and so cannot run before the kernel or
//! the next write refills their pool, take turns of 64.
//!
//! # Writers of a quota
//!
//! The group sets the quota and restores it; the controller writes it in between. So a group is
//! removed from the controller before its quota is restored ([`HeadroomControl::remove`]).
//!
//! A group that cannot be measured or whose quota cannot be written keeps its quota, and is
//! tried again; the control of the others continues.

mod activity;
mod batch_group;
mod demand;
mod running;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::Hierarchy;

pub(crate) use batch_group::BatchGroup;
use running::RunningController;

use crate::error::Result;
use crate::knobs::HeadroomDemand;
use crate::sample::HeadroomSample;

/// Interval of the loop while a group is active.
const INTERVAL: Duration = Duration::from_millis(10);
/// Interval of the loop while no group is active.
const RESTING_INTERVAL: Duration = Duration::from_millis(50);
/// Number of intervals between two returns of groups that have used up their quota.
const RETURN_INTERVALS: u32 = 4;
/// Time before another attempt to start a controller that could not be started.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Headroom control of the host: all batch groups that yield to it, and the controller while there
/// is any such group.
///
/// Clones share the state: one is ticked by a thread that waits for nothing else, another adds and
/// removes groups. The lock is held for one tick, or while the limits of one group are written, but
/// not while processes are moved or while waiting for the disk.
///
/// A group must be removed before its quota is restored.
#[derive(Debug, Clone)]
pub struct HeadroomControl(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    hierarchy: Arc<Hierarchy>,
    groups: BTreeMap<String, BatchGroup>,
    /// Merged demand of all groups of the machine.
    demand: HeadroomDemand,
    running: Option<Box<RunningController>>,
    /// Counts of the controllers that ran before.
    counted: HeadroomSample,
    /// Time of the next update; `None`: at once.
    due: Option<Instant>,
}

impl HeadroomControl {
    pub(crate) fn new(hierarchy: &Arc<Hierarchy>) -> Self {
        Self(Arc::new(Mutex::new(State {
            hierarchy: Arc::clone(hierarchy),
            groups: BTreeMap::new(),
            demand: HeadroomDemand::default(),
            running: None,
            counted: HeadroomSample::default(),
            due: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves the state as it was between two system calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the headroom that the batch groups leave, and their tolerance.
    pub(crate) fn set_demand(&self, demand: HeadroomDemand) {
        let mut state = self.lock();
        state.demand = demand;
        if let Some(running) = &mut state.running {
            running.set_demand(demand);
        }
        state.due = None;
    }

    /// Adds a batch group that is limited already, or follows a change of one.
    pub(crate) fn add(&self, group: &BatchGroup) {
        self.lock().add(group);
    }

    /// Removes a group, if it is known. Its quota is not written any more and can be restored.
    pub(crate) fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Keeps the controller from writing a quota while `act` writes files of the groups. `act`
    /// should write the files of a few groups only.
    pub(crate) fn paused<T>(&self, act: impl FnOnce() -> T) -> T {
        let _held = self.lock();
        act()
    }

    /// Removes all groups: no quota is written any more.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.groups.clear();
        state.running = None;
    }

    /// Runs the controller. Returns when to call again; `None`: there is no group.
    ///
    /// # Errors
    /// When the usage of the machine cannot be measured. Groups stay limited; the next call
    /// tries again.
    pub fn tick(&self, now: Instant) -> Result<Option<Instant>> {
        self.lock().tick(now)
    }

    /// Returns the controller's state; `None`: there is no group, or the controller has not run
    /// yet.
    pub(crate) fn sample(&self) -> Option<HeadroomSample> {
        self.lock().running.as_ref().map(|running| running.sample())
    }
}

impl State {
    fn add(&mut self, group: &BatchGroup) {
        if self.groups.get(&group.name) == Some(group) {
            return;
        }
        let before = self.groups.insert(group.name.clone(), group.clone());
        if let Some(running) = &mut self.running {
            match before {
                None => running.keep(group),
                Some(_) => running.keep_changed(group),
            }
        }
        self.due = None;
    }

    fn remove(&mut self, name: &str) {
        if self.groups.remove(name).is_none() {
            return;
        }
        if let Some(running) = &mut self.running {
            running.forget(name);
        }
        if self.groups.is_empty()
            && let Some(running) = self.running.take()
        {
            self.counted = running.sample();
        }
    }

    fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        // The caller comes earlier when another loop is due.
        if let Some(due) = self.due.filter(|due| now < *due) {
            return Ok(Some(due));
        }
        self.due = Some(now + RETRY_INTERVAL);
        let running = match &mut self.running {
            Some(running) => running,
            None => {
                let mut running =
                    RunningController::start(&self.hierarchy, self.demand, &self.counted, now)?;
                self.groups.values().for_each(|group| running.keep(group));
                self.running.insert(Box::new(running))
            }
        };
        self.due = Some(now + INTERVAL);
        running.tick(now)?;
        if !running.is_busy() {
            self.due = Some(now + RESTING_INTERVAL);
        }
        Ok(self.due)
    }
}
