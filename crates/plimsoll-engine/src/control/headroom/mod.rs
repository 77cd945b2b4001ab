//! The headroom controller on stock knobs.
//!
//! Every 10 ms it measures what side work and everything else used, asks
//! the core what side work may run until the next time, and writes that as
//! the quota of the side groups. Writing a quota refills the kernel's pool
//! at once, so the loop itself is the refill; the period is the longest
//! there is (1 s), and if the loop stops, a side group gets no more than
//! one such quota per second.

mod activity;
mod announce;
mod leader;
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

use crate::cgroup::Hierarchy;
use crate::enforcer::HeadroomSample;
use crate::error::Result;
use crate::runtime::RuntimeFolder;

/// How often the loop runs.
const GRAIN: Duration = Duration::from_millis(10);
/// How often other processes' sides are looked for, the lock is tried and
/// changed announcements are written.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

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
            self.leader = None;
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
        if self.leader.is_none() {
            self.try_to_lead(now)?;
        }
        if let Some(leader) = &mut self.leader {
            self.due = Some(now + GRAIN);
            leader.tick(now, self.announcement.path())?;
            return Ok(self.due);
        }
        announced.map(|()| self.due)
    }

    fn try_to_lead(&mut self, now: Instant) -> Result<()> {
        let Some(lock) = ControllerLock::try_take(&self.runtime)? else {
            return Ok(());
        };
        let mut leader = Leader::start(lock, &self.hierarchy, &self.runtime, now)?;
        self.sides.values().for_each(|side| leader.keep(side));
        self.leader = Some(Box::new(leader));
        Ok(())
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
