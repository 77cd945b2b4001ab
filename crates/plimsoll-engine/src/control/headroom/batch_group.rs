//! One batch group under control: its files, and the estimated content of its pool.

use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::os::{Access, File};
use plimsoll_cgroupfs::{CpuGroup, CpuMax, UsageCounter};
use plimsoll_policy::sharing::{self, Sharer};

use super::RETURN_INTERVALS;
use super::activity::GroupActivity;
use crate::cgroup::bandwidth::{KERNEL_PERIOD_MAX_USEC, KERNEL_QUOTA_MIN_NS};
use crate::error::{EngineError, Result};
use crate::knobs::units::NSEC_PER_USEC;

/// Largest debt of a group: more than a tick on each CPU.
const DEBT_MAX_NS: u64 = 50_000_000;
/// Difference under which a quota is not written again.
const WRITE_STEP_NS: u64 = 200_000;
/// Time after which a quota is written again all the same: another process may have written it.
const REWRITE_INTERVAL: Duration = Duration::from_millis(100);
/// Time before another attempt to write a quota that the kernel refused.
const REFUSED_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchGroup {
    pub name: String,
    /// Weight relative to the other batch groups.
    pub weight: u32,
    /// Cgroup whose quota the controller writes; bound if another process may create another of
    /// the same path.
    pub group: CpuGroup,
    /// Largest quota that may be written: v1 refuses a rate above those of the parents.
    pub quota_max_ns: u64,
}

#[derive(Debug)]
pub(super) struct ControlledGroup {
    pub description: BatchGroup,
    pub activity: GroupActivity,
    /// Usage counter, kept open while the process has file descriptors to spare.
    usage: Option<UsageCounter>,
    usage_ns: u64,
    /// File of the quota, kept open while the group is active.
    quota_file: Option<File>,
    /// Quota in the file; `None`: unknown.
    quota_ns: Option<u64>,
    /// Estimated rest of the kernel's pool.
    left_ns: u64,
    /// Usage beyond the quota. The kernel forgets it when the quota is written, but the group owes
    /// it to those that share the allowance.
    debt_ns: u64,
    /// Sum of the shares that were too small for the kernel and not written so far.
    waited_ns: u64,
    written: Option<Instant>,
    refused: Option<Instant>,
    /// Usage in the last interval.
    used_ns: u64,
}

impl ControlledGroup {
    /// Begins to control a group, on the assumption that its pool holds the smallest quota, which
    /// the next write makes true.
    pub fn open(description: BatchGroup, now: Instant) -> Result<Self> {
        let usage = description.group.usage_counter()?;
        description.group.check_exists()?;
        Ok(Self {
            activity: GroupActivity::starting_at(now),
            usage_ns: usage.read_ns()?,
            description,
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

    /// Changes the parameters of the same cgroup, whose quota may have been written meanwhile.
    pub fn redescribe(&mut self, description: BatchGroup, now: Instant) {
        self.activity = GroupActivity::starting_at(now);
        self.description = description;
        self.quota_ns = None;
        self.written = None;
        self.refused = None;
    }

    /// Reads the usage since the last call. `keep_open`: makes the next call fast, at the cost
    /// of an open file.
    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn measure(&mut self, keep_open: bool) -> Result<u64> {
        let usage = match self.usage.take() {
            Some(usage) => usage,
            None => self.description.group.usage_counter()?,
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

    /// Returns whether the group has used up its quota.
    pub fn is_hungry(&self) -> bool {
        self.left_ns < KERNEL_QUOTA_MIN_NS
    }

    /// Time for which the group can go on with its quota until the next return. Of the smallest
    /// quota, which cannot be cut, the group claims only the time that it is likely to use.
    pub fn rest_ns(&self) -> u64 {
        if self.left_ns <= KERNEL_QUOTA_MIN_NS {
            return self.left_ns.min(self.ample_ns());
        }
        self.left_ns
    }

    /// Returns whether the rest of the quota is likely to last until the next return.
    fn can_go_on(&self) -> bool {
        self.used_ns > 0 && self.left_ns >= self.ample_ns()
    }

    /// Twice the time that the group uses until the next return if it goes on as in the last
    /// interval.
    fn ample_ns(&self) -> u64 {
        self.used_ns.saturating_mul(2 * u64::from(RETURN_INTERVALS))
    }

    /// Returns the group as the core shares a grant.
    pub fn claim(&self) -> Sharer {
        Sharer {
            want_ns: self.want_ns(),
            modest_ns: self.modest_want_ns(),
            weight: self.description.weight,
            share_ns: 0,
            debt_ns: self.debt_ns,
            waited_ns: self.waited_ns,
        }
    }

    /// Takes over what the core has noted of the group.
    pub fn take(&mut self, claim: &Sharer) {
        self.debt_ns = claim.debt_ns;
        self.waited_ns = claim.waited_ns;
    }

    /// Time that the group can use until the next return: any amount if it has used up its quota,
    /// else somewhat more than it used. A group that runs, with enough quota left to go on, has not
    /// used it up. One that does not run may be throttled in spite of the estimated rest, which a
    /// CPU may hold.
    fn want_ns(&self) -> u64 {
        let least_ns = if self.is_hungry() {
            0
        } else {
            KERNEL_QUOTA_MIN_NS
        };
        self.modest_want_ns().max(least_ns)
    }

    /// Smallest share that the group needs until the next return, while many groups wait for quota.
    fn modest_want_ns(&self) -> u64 {
        if self.is_hungry() && !self.can_go_on() {
            return sharing::WANT_ANYTHING_NS;
        }
        self.ample_ns()
    }

    fn is_refused(&self, now: Instant) -> bool {
        is_within(self.refused, REFUSED_INTERVAL, now)
    }

    /// Returns the quota to write so that the group can run for `share_ns`; `None`: no write is
    /// needed.
    pub fn next_quota_ns(&self, share_ns: u64, now: Instant) -> Option<u64> {
        let share_ns = share_ns.min(self.description.quota_max_ns);
        if self.is_refused(now) {
            return None;
        }
        if share_ns < KERNEL_QUOTA_MIN_NS {
            // The kernel accepts no such quota: the group goes without, and an older, larger rest
            // is cut to the smallest quota.
            let is_low = self.quota_ns.is_some() && self.left_ns <= KERNEL_QUOTA_MIN_NS;
            return (!is_low).then_some(KERNEL_QUOTA_MIN_NS);
        }
        let is_near = self.left_ns.abs_diff(share_ns) < WRITE_STEP_NS;
        let is_new = is_within(self.written, REWRITE_INTERVAL, now);
        (!is_near || !is_new).then_some(share_ns)
    }

    /// Returns the quota to write before the group becomes dormant: the smallest that the kernel
    /// accepts. `None`: it is written already.
    pub fn last_quota_ns(&self) -> Option<u64> {
        (self.quota_ns != Some(KERNEL_QUOTA_MIN_NS)).then_some(KERNEL_QUOTA_MIN_NS)
    }

    /// Makes the group dormant.
    pub fn rest(&mut self) {
        self.quota_file = None;
        self.debt_ns = 0;
        self.waited_ns = 0;
    }

    /// Writes a quota, which fills the pool.
    ///
    /// # Errors
    /// When the kernel refuses it; the next attempt is made after [`REFUSED_INTERVAL`].
    pub fn write(&mut self, quota_ns: u64, keep_open: bool, now: Instant) -> Result<()> {
        let (path, text) = self.description.group.quota_setting(&quota_of(quota_ns));
        let file = match self.quota_file.take() {
            Some(file) => file,
            None => self
                .open_quota(&path)
                .inspect_err(|_| self.refused = Some(now))?,
        };
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

    /// Opens the file of the quota. The check afterwards ensures that the file belongs to this
    /// cgroup.
    fn open_quota(&self, path: &Path) -> Result<File> {
        let file = File::open(path, Access::Write);
        let file = file.map_err(|source| EngineError::file("open", path, source))?;
        self.description.group.check_exists()?;
        Ok(file)
    }
}

fn is_within(then: Option<Instant>, time: Duration, now: Instant) -> bool {
    then.is_some_and(|then| now.saturating_duration_since(then) < time)
}

fn quota_of(quota_ns: u64) -> CpuMax {
    CpuMax {
        quota_usec: Some(quota_ns / NSEC_PER_USEC),
        period_usec: KERNEL_PERIOD_MAX_USEC,
        burst_usec: 0,
    }
}
