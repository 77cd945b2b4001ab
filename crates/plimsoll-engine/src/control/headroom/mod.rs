//! The headroom controller on stock knobs.
//!
//! Every 10 ms it measures what side work and everything else used, asks
//! the core what side work may run until the next time, and writes that as
//! the quota of the side groups. Writing a quota refills the kernel's pool
//! at once, so the loop itself is the refill; the period is the longest
//! there is (1 s), and if the loop stops, a side group gets no more than
//! one such quota per second.
//!
//! # Thousands of side groups
//!
//! Most side groups do nothing most of the time. One that used less than
//! 50 µs in 200 ms, and was not held up, becomes *dormant*: it keeps the least
//! quota that the kernel takes, 1 ms a second, and has no part in the sharing.
//! With n dormant sides, each is looked at once within n ms, but not more often
//! than it takes to see all within 200 ms, and not less often than every
//! second: n / 20 of up to 200 sides every 10 ms, 10 of up to 1,000 sides, and
//! n / 100 of more. One that has used 250 µs within a second is active again.
//! While all are dormant the loop runs every 50 ms, and looks at five times as
//! many. So
//!
//! - a side group that wakes up is measured, and has room where there is any,
//!   within 200 ms (up to 200 dormant sides) or a second, and 50 ms;
//! - until then it has run at most what its quota gave it, 1 ms a second
//!   besides the 1 ms that its pool held. Nobody can tell that time from other
//!   work before it is looked at, so it counts as such, and side work that is
//!   measured late is told to the core as soon as there is as much use of the
//!   machine to take it from: the law is kept for all work together at any
//!   time.
//!
//! Active sides are measured every time. Where more than 64 are active, those
//! of them that have used up what they were given, and so cannot run before
//! the kernel or the next write refills their pool, take turns of 64.
//!
//! # Who writes a quota
//!
//! The group sets the quota and puts it back; the controller writes it in between. So a group
//! is removed from the controller before its quota is put back ([`HeadroomDuty::remove`]).
//!
//! A side that cannot be measured or refuses its quota keeps what it has, and
//! is tried again; the others are controlled as ever.

mod activity;
mod demand;
mod running;
mod share;
mod side;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::Hierarchy;

use running::Running;
pub(crate) use side::SideDescription;

use crate::enforcer::HeadroomSample;
use crate::error::Result;

/// How often the loop runs.
const GRAIN: Duration = Duration::from_millis(10);
/// How often it runs while no side is active.
const RESTING_GRAIN: Duration = Duration::from_millis(50);
/// A controller that cannot be started is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The headroom of the host: all batch groups that make room for it, and the controller while
/// there is any.
///
/// Clones share it: one is ticked by a thread that nothing else holds up, another tells it of
/// groups. Its lock is held for as long as one tick takes, or the limits of one group to be
/// written, and by nobody while processes are moved or the disk is waited for.
///
/// Its sides must be removed before their quotas are put back.
#[derive(Debug, Clone)]
pub struct HeadroomDuty(Arc<Mutex<Duty>>);

#[derive(Debug)]
struct Duty {
    hierarchy: Arc<Hierarchy>,
    sides: BTreeMap<String, SideDescription>,
    running: Option<Box<Running>>,
    /// What the controllers counted that ran before.
    counted: HeadroomSample,
    /// When to do anything next; `None`: at once.
    due: Option<Instant>,
}

impl HeadroomDuty {
    /// Without any side.
    pub(crate) fn new(hierarchy: &Arc<Hierarchy>) -> Self {
        Self(Arc::new(Mutex::new(Duty {
            hierarchy: Arc::clone(hierarchy),
            sides: BTreeMap::new(),
            running: None,
            counted: HeadroomSample::default(),
            due: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Duty> {
        // A panic has left it as it was between two system calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a side group that is limited already, or a change of one.
    pub(crate) fn add(&self, side: &SideDescription) {
        self.lock().add(side);
    }

    /// From now on the quota of that group is not written any more: it can be put back. A group
    /// that is no side is left alone.
    pub(crate) fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Writes no quota while files of its sides are written: some of them at once is all that may
    /// take.
    pub(crate) fn paused<T>(&self, act: impl FnOnce() -> T) -> T {
        let _held = self.lock();
        act()
    }

    /// From now on no quota is written any more.
    pub(crate) fn clear(&self) {
        let mut duty = self.lock();
        duty.sides.clear();
        duty.running = None;
    }

    /// Runs the controller. Returns when to call again; `None`: there is no side.
    ///
    /// # Errors
    /// When the machine's use cannot be measured. What is limited stays limited; the next call
    /// tries again.
    pub fn tick(&self, now: Instant) -> Result<Option<Instant>> {
        self.lock().tick(now)
    }

    /// The controller's state; `None`: there is no side, or it has not run yet.
    pub(crate) fn sample(&self) -> Option<HeadroomSample> {
        self.lock().running.as_ref().map(|running| running.sample())
    }
}

impl Duty {
    fn add(&mut self, side: &SideDescription) {
        if self.sides.get(&side.name) == Some(side) {
            return;
        }
        let before = self.sides.insert(side.name.clone(), side.clone());
        if let Some(running) = &mut self.running {
            match before {
                None => running.keep(side),
                Some(_) => running.keep_changed(side),
            }
        }
        self.due = None;
    }

    fn remove(&mut self, name: &str) {
        if self.sides.remove(name).is_none() {
            return;
        }
        if let Some(running) = &mut self.running {
            running.forget(name);
        }
        if self.sides.is_empty()
            && let Some(running) = self.running.take()
        {
            self.counted = running.sample();
        }
    }

    fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        if self.sides.is_empty() {
            return Ok(None);
        }
        // Other loops have the caller come more often.
        if let Some(due) = self.due.filter(|due| now < *due) {
            return Ok(Some(due));
        }
        self.due = Some(now + RETRY_INTERVAL);
        let running = match &mut self.running {
            Some(running) => running,
            None => {
                let mut running = Running::start(&self.hierarchy, &self.counted, now)?;
                self.sides.values().for_each(|side| running.keep(side));
                self.running.insert(Box::new(running))
            }
        };
        self.due = Some(now + GRAIN);
        running.tick(now)?;
        if !running.is_busy() {
            self.due = Some(now + RESTING_GRAIN);
        }
        Ok(self.due)
    }
}
