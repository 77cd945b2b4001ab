//! The headroom controller on stock knobs.
//!
//! Every 10 ms it measures what side work and everything else used, asks
//! the core what side work may run until the next time, and writes that as
//! the quota of the side groups. Writing a quota refills the kernel's pool
//! at once, so the loop itself is the refill; the period is the longest
//! there is (1 s), and if the loop stops, a side group gets no more than
//! one such quota per second.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_policy::headroom::{self as core, Controller, Params, Side};

use super::CoreClock;
use super::sides::{self, ControllerLock, SideDescription};
use crate::cgroup::layout::{KERNEL_PERIOD_MAX_NS, KERNEL_QUOTA_MIN_NS};
use crate::cgroup::{BusyMeter, CpuGroup, Hierarchy, UsageCounter};
use crate::enforcer::HeadroomSample;
use crate::error::{EngineError, Result};
use crate::host::nr_cpus_online;
use crate::knobs::{Bandwidth, Quota};
use crate::runtime::{RuntimeFolder, write_atomically};

/// How often the loop runs.
pub(crate) const GRAIN: Duration = Duration::from_millis(10);
/// How often side groups are looked for, and the lock is tried.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);
/// How often the state is published.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// No group owes more: what a tick on each CPU comes to, with room.
const DEBT_MAX_NS: u64 = 50_000_000;
/// A quota is not written again for a smaller difference, …
const WRITE_STEP_NS: u64 = 200_000;
/// … unless it was written this long ago: somebody else may have written too.
const REWRITE_INTERVAL: Duration = Duration::from_millis(100);

/// One side group under control.
#[derive(Debug)]
struct ControlledSide {
    description: SideDescription,
    usage: UsageCounter,
    usage_ns: u64,
    group: CpuGroup,
    quota_file: File,
    quota_path: PathBuf,
    /// What the kernel's pool still holds, as far as can be told from here.
    left_ns: u64,
    /// What it used beyond what it was given: a write forgives it to the
    /// kernel, but not to the groups that it shares the allowance with.
    debt_ns: u64,
    /// Shares too small for the kernel that it has gone without so far.
    waited_ns: u64,
    written: Option<Instant>,
    /// Used in the last interval.
    used_ns: u64,
    /// Had used up what it was given.
    hungry: bool,
}

impl ControlledSide {
    fn open(hierarchy: &Arc<Hierarchy>, description: SideDescription) -> Result<Self> {
        let group = CpuGroup::at(hierarchy, &description.group);
        let usage = UsageCounter::open(group.usage_file(), description.version)?;
        let usage_ns = usage.read_ns()?;
        let (quota_path, _) = group.quota_setting(&quota_of(KERNEL_QUOTA_MIN_NS));
        let quota_file = OpenOptions::new().write(true).open(&quota_path);
        let quota_file =
            quota_file.map_err(|source| EngineError::cgroup("open", &quota_path, source))?;
        Ok(Self {
            description,
            usage,
            usage_ns,
            group,
            quota_file,
            quota_path,
            left_ns: 0,
            debt_ns: 0,
            waited_ns: 0,
            written: None,
            used_ns: 0,
            hungry: true,
        })
    }

    /// Reads what it used since the last time.
    fn measure(&mut self) -> Result<u64> {
        let usage_ns = self.usage.read_ns()?;
        self.used_ns = usage_ns.saturating_sub(self.usage_ns);
        self.usage_ns = usage_ns;
        let over_ns = self.used_ns.saturating_sub(self.left_ns);
        self.debt_ns = (self.debt_ns + over_ns).min(DEBT_MAX_NS);
        self.left_ns = self.left_ns.saturating_sub(self.used_ns);
        self.hungry = self.left_ns < KERNEL_QUOTA_MIN_NS;
        Ok(self.used_ns)
    }

    /// What it can use until the next time: anything, if it had used up what
    /// it was given; else somewhat more than it used.
    fn want_ns(&self) -> u64 {
        if self.hungry {
            return core::WANT_ANYTHING_NS;
        }
        self.used_ns.saturating_mul(2).max(KERNEL_QUOTA_MIN_NS)
    }

    /// Lets it run `share_ns` until the next time. Returns whether that took
    /// a write.
    fn give(&mut self, share_ns: u64, now: Instant) -> Result<bool> {
        let share_ns = share_ns.min(self.description.quota_max_ns);
        let quota_ns = if share_ns >= KERNEL_QUOTA_MIN_NS {
            let recent = self
                .written
                .is_some_and(|written| now - written < REWRITE_INTERVAL);
            if recent && self.left_ns.abs_diff(share_ns) < WRITE_STEP_NS {
                return Ok(false);
            }
            share_ns
        } else {
            // Less than the kernel takes: leave it without, unless it still
            // holds more than that from before.
            if self.left_ns <= KERNEL_QUOTA_MIN_NS {
                return Ok(false);
            }
            KERNEL_QUOTA_MIN_NS
        };
        let (_, text) = self.group.quota_setting(&quota_of(quota_ns));
        self.quota_file
            .write_at(text.as_bytes(), 0)
            .map_err(|source| {
                EngineError::cgroup(format!("write `{text}`"), &self.quota_path, source)
            })?;
        self.left_ns = quota_ns;
        self.written = Some(now);
        Ok(true)
    }
}

fn quota_of(quota_ns: u64) -> Bandwidth {
    let quota = Quota {
        quota_ns: Some(quota_ns),
        period_ns: KERNEL_PERIOD_MAX_NS,
    };
    Bandwidth { quota, burst_ns: 0 }
}

/// The kernel takes no quota under 1 ms. Where several sides share less than
/// that each, none of them could ever run, not even for the tolerance: what
/// they have together goes, in pieces that the kernel takes, to those that
/// have gone without the most so far.
fn pool_small_shares(mut sides: Vec<(&mut Side, &mut u64)>) {
    // Only those that have used up what they were given wait for more.
    sides.retain(|(claim, _)| {
        claim.want_ns == core::WANT_ANYTHING_NS && claim.share_ns < KERNEL_QUOTA_MIN_NS
    });
    if sides.len() < 2 {
        return;
    }
    let pool_ns: u64 = sides.iter().map(|(claim, _)| claim.share_ns).sum();
    for (claim, waited_ns) in &mut sides {
        **waited_ns = waited_ns.saturating_add(claim.share_ns);
        claim.share_ns = 0;
    }
    sides.sort_by_key(|(_, waited_ns)| std::cmp::Reverse(**waited_ns));
    // No more pieces than sides, for each had less than a piece.
    let nr_pieces = usize::try_from(pool_ns / KERNEL_QUOTA_MIN_NS).unwrap_or(0);
    for (claim, waited_ns) in sides.into_iter().take(nr_pieces) {
        claim.share_ns = KERNEL_QUOTA_MIN_NS;
        *waited_ns = 0;
    }
}

/// Sums over the time since the last publication.
#[derive(Debug, Default)]
struct Sums {
    elapsed_ns: u64,
    side_ns: u64,
    nonside_ns: u64,
    allowance_ns: u64,
}

/// The controller, in the process that holds its lock.
#[derive(Debug)]
struct Leader {
    _lock: ControllerLock,
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    clock: CoreClock,
    controller: Controller,
    busy: BusyMeter,
    sides: Vec<ControlledSide>,
    nr_cpus: u32,
    updated: Instant,
    scanned: Instant,
    /// When the runtime folder had changed last, as of the last scan.
    folder_changed: Option<SystemTime>,
    published: Instant,
    sums: Sums,
    sample: HeadroomSample,
}

impl Leader {
    fn start(
        lock: ControllerLock,
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        now: Instant,
    ) -> Result<Self> {
        let descriptions = SideDescription::all(runtime);
        let nr_cpus = nr_cpus_online();
        let params = params_of(&descriptions, nr_cpus);
        let controller = Controller::new(params, 0).map_err(|error| EngineError::Control {
            name: "headroom".into(),
            problem: error.to_string(),
        })?;
        let mut leader = Self {
            _lock: lock,
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            clock: CoreClock::starting_at(now),
            controller,
            busy: BusyMeter::start(hierarchy)?,
            sides: Vec::new(),
            nr_cpus,
            updated: now,
            scanned: now,
            folder_changed: None,
            published: now,
            sums: Sums::default(),
            sample: HeadroomSample::default(),
        };
        leader.adopt(descriptions);
        Ok(leader)
    }

    /// Reads the announcements again if the folder has changed: its time
    /// costs one call, its files many.
    fn look_for_sides(&mut self) {
        let changed = std::fs::metadata(self.runtime.path()).and_then(|folder| folder.modified());
        let changed = changed.ok();
        if changed.is_none() || changed != self.folder_changed {
            self.folder_changed = changed;
            self.adopt(SideDescription::all(&self.runtime));
        }
    }

    /// Takes over the side groups that are announced now.
    fn adopt(&mut self, descriptions: Vec<SideDescription>) {
        let nr_cpus = nr_cpus_online();
        // Only out of range where the core's own limits are: 8192 CPUs.
        if self
            .controller
            .set(params_of(&descriptions, nr_cpus))
            .is_ok()
        {
            self.nr_cpus = nr_cpus;
        }
        let mut known = std::mem::take(&mut self.sides);
        for description in descriptions {
            let same = known
                .iter()
                .position(|side| side.description == description);
            // One that has just gone is not ours to control any more.
            let side = match same {
                Some(index) => Ok(known.swap_remove(index)),
                None => ControlledSide::open(&self.hierarchy, description),
            };
            self.sides.extend(side);
        }
    }

    fn tick(&mut self, now: Instant) -> Result<()> {
        if now - self.scanned >= SCAN_INTERVAL {
            self.scanned = now;
            self.look_for_sides();
        }
        let busy_ns = self.busy.busy_ns()?;
        let mut side_ns = 0;
        self.sides.retain_mut(|side| match side.measure() {
            Ok(used_ns) => {
                side_ns += used_ns;
                true
            }
            // Its cgroup was removed.
            Err(_) => false,
        });
        let nonside_ns = busy_ns.saturating_sub(side_ns);
        let grant_ns = self
            .controller
            .update(nonside_ns, side_ns, self.clock.at(now));
        self.hand_out(grant_ns, now)?;
        self.count(now, nonside_ns, side_ns);
        Ok(())
    }

    fn hand_out(&mut self, grant_ns: u64, now: Instant) -> Result<()> {
        let mut claims: Vec<Side> = self
            .sides
            .iter()
            .map(|side| Side {
                want_ns: side.want_ns(),
                share_ns: 0,
                weight: side.description.weight,
            })
            .collect();
        // The grant is net of what all overran; each pays its own part.
        let debts_ns: u64 = self.sides.iter().map(|side| side.debt_ns).sum();
        for chunk in claims.chunks_mut(core::SIDES_MAX) {
            // A chunk is no longer than what the core serves at once.
            let _ = core::split(chunk, grant_ns + debts_ns);
        }
        for (side, claim) in self.sides.iter_mut().zip(&mut claims) {
            let paid_ns = side.debt_ns.min(claim.share_ns);
            side.debt_ns -= paid_ns;
            claim.share_ns -= paid_ns;
        }
        // Where one could not pay all of it, the others have too much.
        let total_ns: u64 = claims.iter().map(|claim| claim.share_ns).sum();
        for claim in claims.iter_mut().filter(|_| total_ns > grant_ns) {
            let share_ns = u128::from(claim.share_ns) * u128::from(grant_ns) / u128::from(total_ns);
            claim.share_ns = u64::try_from(share_ns).unwrap_or(grant_ns);
        }
        let waiting = self.sides.iter_mut().map(|side| &mut side.waited_ns);
        pool_small_shares(claims.iter_mut().zip(waiting).collect());
        let mut first_error = None;
        for (side, claim) in self.sides.iter_mut().zip(&claims) {
            match side.give(claim.share_ns, now) {
                Ok(written) => self.sample.nr_writes += u64::from(written),
                Err(error) if error.is_gone() => (),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn count(&mut self, now: Instant, nonside_ns: u64, side_ns: u64) {
        let elapsed = now.saturating_duration_since(self.updated);
        self.updated = now;
        self.sums.elapsed_ns += u64::try_from(elapsed.as_nanos()).unwrap_or(0);
        self.sums.side_ns += side_ns;
        self.sums.nonside_ns += nonside_ns;
        self.sums.allowance_ns += self.controller.allowance_ns();
        self.sample.nr_updates += 1;
        if now - self.published >= PUBLISH_INTERVAL {
            self.published = now;
            self.publish();
        }
    }

    fn publish(&mut self) {
        let sums = std::mem::take(&mut self.sums);
        let capacity_ns = (sums.elapsed_ns * u64::from(self.nr_cpus)).max(1);
        let ppm = |part_ns: u64| part_ns.saturating_mul(1_000_000) / capacity_ns;
        self.sample.headroom_ppm = self.controller.params().headroom_ppm;
        self.sample.allowance_ppm = ppm(sums.allowance_ns);
        self.sample.side_ppm = ppm(sums.side_ns);
        self.sample.nonside_ppm = ppm(sums.nonside_ns);
        self.sample.headroom_shortfall_usec = self.controller.shortfall_ns() / 1000;
        self.sample.controller_usec = thread_cpu_usec();
        self.sample.sides = self
            .sides
            .iter()
            .map(|side| side.description.name.clone())
            .collect();
        if self.sides.len() > 1 {
            // For those who keep the others. Whoever shows it can live
            // without; the control must go on.
            let _ = write_atomically(&sides::state_file(self.runtime.path()), &self.sample, false);
        }
    }
}

/// CPU time of the calling thread.
fn thread_cpu_usec() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    u64::try_from(time.unwrap_or_default().as_micros()).unwrap_or(0)
}

/// What all side groups ask for together: the largest headroom, the smallest
/// tolerance.
fn params_of(sides: &[SideDescription], nr_cpus: u32) -> Params {
    let headroom_ppm = sides
        .iter()
        .map(|side| side.headroom.share_ppm(nr_cpus))
        .max();
    let rate = |side: &&SideDescription| {
        let tolerance = side.tolerance;
        u128::from(tolerance.runtime_ns) * 1_000_000 / u128::from(tolerance.period_ns)
    };
    let tolerance = sides
        .iter()
        .min_by_key(rate)
        .map(|side| side.tolerance)
        .unwrap_or_default();
    Params {
        window_ns: core::WINDOW_DEFAULT_NS,
        grain_ns: GRAIN.as_nanos() as u64,
        tolerance_runtime_ns: tolerance.runtime_ns,
        tolerance_period_ns: tolerance.period_ns,
        headroom_ppm: headroom_ppm.unwrap_or(0),
        nr_cpus,
    }
}

/// A side group's link to the controller, which may run here or elsewhere.
#[derive(Debug)]
pub(crate) struct HeadroomLink {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    name: String,
    leader: Option<Box<Leader>>,
    tried: Option<Instant>,
}

impl HeadroomLink {
    pub fn new(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        side: &SideDescription,
    ) -> Result<Self> {
        side.announce(runtime)?;
        Ok(Self {
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            name: side.name.clone(),
            leader: None,
            tried: None,
        })
    }

    /// Runs the controller, if it runs here, or sees whether it should.
    /// Returns when to call again.
    pub fn tick(&mut self, now: Instant) -> Result<Instant> {
        if self.leader.is_none() {
            if self.tried.is_some_and(|tried| now - tried < SCAN_INTERVAL) {
                return Ok(now + SCAN_INTERVAL);
            }
            self.tried = Some(now);
            let Some(lock) = ControllerLock::try_take(&self.runtime)? else {
                return Ok(now + SCAN_INTERVAL);
            };
            self.leader = Some(Box::new(Leader::start(
                lock,
                &self.hierarchy,
                &self.runtime,
                now,
            )?));
        }
        if let Some(leader) = &mut self.leader {
            leader.tick(now)?;
        }
        Ok(now + GRAIN)
    }

    /// The controller's state, wherever it runs.
    pub fn sample(&self) -> Option<HeadroomSample> {
        match &self.leader {
            Some(leader) => Some(leader.sample.clone()),
            None => published(&self.runtime),
        }
    }
}

/// The state that the controller of this user has published last.
pub fn published(runtime: &RuntimeFolder) -> Option<HeadroomSample> {
    serde_json::from_slice(&std::fs::read(sides::state_file(runtime.path())).ok()?).ok()
}

impl Drop for HeadroomLink {
    fn drop(&mut self) {
        SideDescription::withdraw(&self.runtime, &self.name);
        if self.leader.is_some() {
            // The next leader writes its own.
            let _ = std::fs::remove_file(sides::state_file(self.runtime.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_reach_everybody_in_turn() {
        let hungry = |weight| Side {
            want_ns: core::WANT_ANYTHING_NS,
            share_ns: 0,
            weight,
        };
        let mut sides = [hungry(100), hungry(100), hungry(200)];
        let mut waited_ns = [0; 3];
        let mut pieces = [0; 3];
        for _ in 0..400 {
            core::split(&mut sides, KERNEL_QUOTA_MIN_NS).unwrap();
            pool_small_shares(sides.iter_mut().zip(&mut waited_ns).collect());
            let given: u64 = sides.iter().map(|side| side.share_ns).sum();
            assert!(given <= KERNEL_QUOTA_MIN_NS);
            for (count, side) in pieces.iter_mut().zip(&sides) {
                *count += side.share_ns / KERNEL_QUOTA_MIN_NS;
            }
        }
        assert_eq!(pieces.iter().sum::<u64>(), 400);
        for (count, fair) in pieces.into_iter().zip([100, 100, 200]) {
            assert!(count.abs_diff(fair) <= 40, "{pieces:?}");
        }
    }
}
