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
//! # Who may write a quota
//!
//! A quota has one keeper, the process whose group it is: it has set it and
//! puts it back. The controller writes it in between, and may run in another
//! process. So the keeper first withdraws the side, and puts the quota back
//! then. In the same process, [`HeadroomDuty::remove`] takes the side from the
//! controller. In another, the controller writes only with the lock of the
//! announcements held, and after a look whether the announcement is still the
//! one that it has read; withdrawing takes the same lock. The announcement of
//! a process that was killed is withdrawn by whoever undoes its journal,
//! before that.
//!
//! A process that is stopped with the controller (Ctrl-Z) loses it to another
//! after a second, and follows that when it goes on.
//!
//! A side that cannot be measured or refuses its quota keeps what it has, and
//! is tried again; the others are controlled as ever.

mod activity;
mod announce;
mod demand;
mod leader;
mod permit;
mod share;
mod side;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use announce::{Announcement, ControllerLock};
pub(crate) use announce::{SideDescription, forget_dead};
use leader::Leader;
use plimsoll_cgroupfs::Hierarchy;

use crate::enforcer::HeadroomSample;
use crate::error::Result;
use crate::runtime::RuntimeFolder;

/// How often the loop runs.
const GRAIN: Duration = Duration::from_millis(10);
/// How often it runs while no side is active.
const RESTING_GRAIN: Duration = Duration::from_millis(50);
/// How often other processes' sides are looked for, the lock is tried and
/// changed announcements are written.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is looked whether the process with the controller is stopped.
/// If it is twice, another takes over.
const STUCK_INTERVAL: Duration = Duration::from_millis(500);

/// One process's part in the headroom of the host: it announces the side
/// groups that are kept here, and runs the controller unless another process
/// does.
///
/// Must be dropped before the quotas of its sides are put back, or have them
/// removed one by one.
#[derive(Debug)]
pub(crate) struct HeadroomDuty {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    sides: BTreeMap<String, SideDescription>,
    announcement: Announcement,
    /// The announcement is not what `sides` is.
    is_outdated: bool,
    announced: Option<Instant>,
    leader: Option<Box<Leader>>,
    /// When another process was seen to lead, and whether it was stopped.
    looked: Option<(Instant, bool)>,
    /// What the controllers counted that ran here before.
    counted: HeadroomSample,
    /// When to do anything next; `None`: at once.
    due: Option<Instant>,
}

impl HeadroomDuty {
    /// Without any side.
    pub fn new(hierarchy: &Arc<Hierarchy>, runtime: &RuntimeFolder) -> Self {
        Self {
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            sides: BTreeMap::new(),
            announcement: Announcement::new(runtime),
            is_outdated: false,
            announced: None,
            leader: None,
            looked: None,
            counted: HeadroomSample::default(),
            due: None,
        }
    }

    /// Takes a side group that is limited already, or what has changed about
    /// one. Other processes hear of it within `SCAN_INTERVAL`.
    ///
    /// # Errors
    /// When it is the first and cannot be announced. Later ones are kept, and
    /// announced as soon as that works.
    pub fn add(&mut self, side: &SideDescription) -> Result<()> {
        if self.sides.get(&side.name) == Some(side) {
            return Ok(());
        }
        let before = self.sides.insert(side.name.clone(), side.clone());
        self.is_outdated = true;
        // One by one would be the whole file for each of a thousand.
        if self.sides.len() == 1
            && let Err(error) = self.announce()
        {
            self.remove(&side.name);
            return Err(error);
        }
        if let Some(leader) = &mut self.leader {
            match before {
                None => leader.keep(side),
                Some(_) => leader.keep_changed(side),
            }
        }
        self.due = None;
        Ok(())
    }

    /// From now on nobody writes the quota of that group any more, neither
    /// this process nor another: it can be put back. What is not a side is
    /// left alone.
    pub fn remove(&mut self, name: &str) {
        if self.sides.remove(name).is_none() {
            return;
        }
        if let Some(leader) = &mut self.leader {
            leader.forget(name);
        }
        // Also where the controller runs here: who takes over must not find it.
        // The others come back with the next tick.
        self.announcement.withdraw();
        self.is_outdated = true;
        if self.sides.is_empty() {
            self.is_outdated = false;
            // Whoever has sides left may have the lock.
            self.resign();
        }
    }

    fn resign(&mut self) {
        if let Some(leader) = self.leader.take() {
            self.counted = leader.sample();
        }
    }

    fn announce(&mut self) -> Result<()> {
        self.announcement.write(self.sides.values())?;
        self.is_outdated = false;
        Ok(())
    }

    fn announce_if_due(&mut self, now: Instant) -> Result<()> {
        let lately = |announced| now.saturating_duration_since(announced) < SCAN_INTERVAL;
        if !self.is_outdated || self.announced.is_some_and(lately) {
            return Ok(());
        }
        self.announced = Some(now);
        self.announce()
    }

    /// Runs the controller, if it runs here, or sees whether it should.
    /// Returns when to call again; `None`: there is no side.
    ///
    /// # Errors
    /// When the machine's use cannot be measured, or the sides neither
    /// controlled here nor announced. What is limited stays limited; the next
    /// call tries again.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        if self.sides.is_empty() {
            return Ok(None);
        }
        // Others have the caller come more often.
        if let Some(due) = self.due.filter(|due| now < *due) {
            return Ok(Some(due));
        }
        self.due = Some(now + SCAN_INTERVAL);
        let announced = self.announce_if_due(now);
        if self.leader.as_ref().is_some_and(|leader| !leader.leads()) {
            self.resign();
        }
        if self.leader.is_none() {
            self.try_to_lead(now)?;
        }
        if let Some(leader) = &mut self.leader {
            self.due = Some(now + GRAIN);
            leader.tick(now, self.announcement.path())?;
            if !leader.is_busy() {
                self.due = Some(now + RESTING_GRAIN);
            }
            return Ok(self.due);
        }
        announced.map(|()| self.due)
    }

    fn try_to_lead(&mut self, now: Instant) -> Result<()> {
        let free = ControllerLock::try_take(&self.runtime)?;
        let lock = match free {
            None if self.others_are_stuck(now) => ControllerLock::take_from_stuck(&self.runtime)?,
            lock => lock,
        };
        let Some(lock) = lock else {
            return Ok(());
        };
        self.looked = None;
        let mut leader = Leader::start(lock, &self.hierarchy, &self.runtime, &self.counted, now)?;
        self.sides.values().for_each(|side| leader.keep(side));
        self.leader = Some(Box::new(leader));
        Ok(())
    }

    /// Whether the process that leads has been stopped for a while.
    fn others_are_stuck(&mut self, now: Instant) -> bool {
        let before = self.looked;
        if before.is_some_and(|(at, _)| now.saturating_duration_since(at) < STUCK_INTERVAL) {
            return false;
        }
        let is_stuck = ControllerLock::is_stuck(&self.runtime);
        self.looked = Some((now, is_stuck));
        is_stuck && before.is_some_and(|(_, was_stuck)| was_stuck)
    }

    /// The controller's state, wherever it runs; `None`: there is no side here,
    /// or it has not published any yet.
    pub fn sample(&self) -> Option<HeadroomSample> {
        if self.sides.is_empty() {
            return None;
        }
        match &self.leader {
            Some(leader) => Some(leader.sample()),
            None => leader::published(&self.runtime),
        }
    }
}
