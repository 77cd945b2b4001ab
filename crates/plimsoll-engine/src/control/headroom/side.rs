//! One side group under control: its files, and what is known of its pool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::os::{Access, File};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, UsageCounter, Version};
use plimsoll_policy::headroom as core;

use super::activity::Activity;
use crate::cgroup::layout::{KERNEL_PERIOD_MAX_NS, KERNEL_QUOTA_MIN_NS};
use crate::error::{EngineError, Result};
use crate::knobs::{Bandwidth, Headroom, Quota, Tolerance};

/// No group owes more: what a tick on each CPU comes to, with room.
const DEBT_MAX_NS: u64 = 50_000_000;
/// A quota is not written again for a smaller difference, …
const WRITE_STEP_NS: u64 = 200_000;
/// … unless it was written this long ago: somebody else may have written too.
const REWRITE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a quota that the kernel refused is not tried again.
const REFUSED_INTERVAL: Duration = Duration::from_millis(100);

/// A batch group, as the controller has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SideDescription {
    pub name: String,
    /// Against the other side groups.
    pub weight: u32,
    /// What it asks for.
    pub headroom: Headroom,
    /// `None`: the default.
    pub tolerance: Option<Tolerance>,
    pub version: Version,
    /// The cgroup whose quota the controller writes, below the mount point.
    pub group: PathBuf,
    /// The inode of that cgroup, where another process may make another of its path.
    pub identity: Option<u64>,
    /// The most that its quota may be: v1 refuses more than its parents'.
    pub quota_max_ns: u64,
}

/// One side group under control.
#[derive(Debug)]
pub(super) struct ControlledSide {
    pub description: SideDescription,
    pub activity: Activity,
    group: CpuGroup,
    /// Kept open where there are files to spare.
    usage: Option<UsageCounter>,
    usage_ns: u64,
    /// Kept open while it is active.
    quota_file: Option<File>,
    /// The quota that stands in the file; `None`: not known.
    quota_ns: Option<u64>,
    /// What the kernel's pool still holds, as far as can be told from here.
    left_ns: u64,
    /// What it used beyond what it was given: a write forgives it to the
    /// kernel, but not to the groups that it shares the allowance with.
    pub debt_ns: u64,
    /// Shares too small for the kernel that it has gone without so far.
    pub waited_ns: u64,
    written: Option<Instant>,
    refused: Option<Instant>,
    /// Used in the last interval.
    used_ns: u64,
}

impl ControlledSide {
    /// Begins to control it, as one that holds the least that there is: the
    /// next write makes that true.
    pub fn open(
        hierarchy: &Arc<Hierarchy>,
        description: SideDescription,
        now: Instant,
    ) -> Result<Self> {
        let group = CpuGroup::at(hierarchy, &description.group);
        check_is_there(&group, &description)?;
        let usage = UsageCounter::open(group.usage_file(), description.version)?;
        Ok(Self {
            activity: Activity::starting_at(now),
            usage_ns: usage.read_ns()?,
            description,
            group,
            usage: None,
            quota_file: None,
            quota_ns: None,
            left_ns: KERNEL_QUOTA_MIN_NS,
            debt_ns: 0,
            waited_ns: 0,
            written: None,
            refused: None,
            used_ns: 0,
        })
    }

    /// Takes over another description of the same cgroup, whose quota may have been written
    /// meanwhile.
    pub fn redescribe(&mut self, description: SideDescription, now: Instant) {
        self.activity = Activity::starting_at(now);
        self.description = description;
        self.quota_ns = None;
        self.written = None;
        self.refused = None;
    }

    /// Reads what it used since the last time. `keep_open`: it is fast the next
    /// time, but takes a file.
    ///
    /// # Errors
    /// When its cgroup is gone.
    pub fn measure(&mut self, keep_open: bool) -> Result<u64> {
        let usage = match self.usage.take() {
            Some(usage) => usage,
            None => UsageCounter::open(self.group.usage_file(), self.description.version)?,
        };
        let usage_ns = usage.read_ns()?;
        self.usage = keep_open.then_some(usage);
        self.used_ns = usage_ns.saturating_sub(self.usage_ns);
        self.usage_ns = usage_ns;
        let over_ns = self.used_ns.saturating_sub(self.left_ns);
        self.debt_ns = (self.debt_ns + over_ns).min(DEBT_MAX_NS);
        self.left_ns = self.left_ns.saturating_sub(self.used_ns);
        Ok(self.used_ns)
    }

    /// Whether it has used up what it was given.
    pub fn is_hungry(&self) -> bool {
        self.left_ns < KERNEL_QUOTA_MIN_NS
    }

    /// What it can use until the next time: anything, if it had used up what
    /// it was given; else somewhat more than it used.
    pub fn want_ns(&self) -> u64 {
        if self.is_hungry() {
            return core::WANT_ANYTHING_NS;
        }
        self.used_ns.saturating_mul(2).max(KERNEL_QUOTA_MIN_NS)
    }

    /// The least that it can do with until the next time, where many wait for
    /// room: one that runs, and holds enough to go on like that, does not wait
    /// itself. One that does not run may be held up, whatever it still seems to
    /// hold: a CPU may have taken it.
    pub fn modest_want_ns(&self) -> u64 {
        let can_go_on = self.used_ns > 0 && self.left_ns >= self.used_ns.saturating_mul(4);
        if self.is_hungry() && !can_go_on {
            return core::WANT_ANYTHING_NS;
        }
        self.used_ns.saturating_mul(2)
    }

    fn is_refused(&self, now: Instant) -> bool {
        is_within(self.refused, REFUSED_INTERVAL, now)
    }

    /// The quota to write so that it can run `share_ns` until the next time;
    /// `None`: it takes no write.
    pub fn next_quota_ns(&self, share_ns: u64, now: Instant) -> Option<u64> {
        let share_ns = share_ns.min(self.description.quota_max_ns);
        if self.is_refused(now) {
            return None;
        }
        if share_ns < KERNEL_QUOTA_MIN_NS {
            // Less than the kernel takes: leave it without, unless it still
            // holds more than that from before.
            let is_low = self.quota_ns.is_some() && self.left_ns <= KERNEL_QUOTA_MIN_NS;
            return (!is_low).then_some(KERNEL_QUOTA_MIN_NS);
        }
        let is_near = self.left_ns.abs_diff(share_ns) < WRITE_STEP_NS;
        let is_new = is_within(self.written, REWRITE_INTERVAL, now);
        (!is_near || !is_new).then_some(share_ns)
    }

    /// The quota to write before nobody looks at it every time any more: the
    /// least that the kernel takes. `None`: it has that.
    pub fn last_quota_ns(&self) -> Option<u64> {
        (self.quota_ns != Some(KERNEL_QUOTA_MIN_NS)).then_some(KERNEL_QUOTA_MIN_NS)
    }

    /// It is dormant from now on.
    pub fn rest(&mut self) {
        self.quota_file = None;
        self.debt_ns = 0;
        self.waited_ns = 0;
    }

    /// Writes a quota, which fills its pool.
    ///
    /// # Errors
    /// When the kernel refuses; it is not asked again for a while.
    pub fn write(&mut self, quota_ns: u64, keep_open: bool, now: Instant) -> Result<()> {
        let (path, text) = self.group.quota_setting(&quota_of(quota_ns).into());
        let file = match self.quota_file.take() {
            Some(file) => Ok(file),
            None => {
                let there = check_is_there(&self.group, &self.description);
                there.inspect_err(|_| self.refused = Some(now))?;
                File::open(&path, Access::Write)
            }
        };
        let file = file.map_err(|source| EngineError::file("open", &path, source))?;
        if let Err(source) = file.write_start(&text) {
            self.refused = Some(now);
            return Err(EngineError::file(format!("write `{text}`"), &path, source));
        }
        self.quota_file = keep_open.then_some(file);
        self.refused = None;
        self.quota_ns = Some(quota_ns);
        self.left_ns = quota_ns;
        self.written = Some(now);
        Ok(())
    }
}

/// Another cgroup of the same path is not the side.
fn check_is_there(group: &CpuGroup, description: &SideDescription) -> Result<()> {
    match description.identity {
        None => Ok(()),
        identity => Ok(group.check_is(identity)?),
    }
}

fn is_within(then: Option<Instant>, time: Duration, now: Instant) -> bool {
    then.is_some_and(|then| now.saturating_duration_since(then) < time)
}

fn quota_of(quota_ns: u64) -> Bandwidth {
    let quota = Quota {
        quota_ns: Some(quota_ns),
        period_ns: KERNEL_PERIOD_MAX_NS,
    };
    Bandwidth { quota, burst_ns: 0 }
}
