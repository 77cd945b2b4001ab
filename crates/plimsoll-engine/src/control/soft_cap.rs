//! Soft caps: a group over its cap is moved to the background.

use std::time::{Duration, Instant};

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_policy::order::GROUP_WEIGHT_MIN as WEIGHT_BACKGROUND;
use plimsoll_policy::ratecap::{Bucket, RateCapParams};

use super::CoreClock;
use crate::error::{EngineError, Result};
use crate::knobs::{HalfLife, SoftCap};
use crate::sample::SoftCapSample;

/// Interval of updates of the usage rate.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Moves a cgroup to the background, or out of it.
pub(crate) fn set_background(
    group: &CpuGroup,
    background: bool,
    weight: u32,
) -> plimsoll_cgroupfs::Result<()> {
    if group.has_idle() {
        if group.read_idle()? == background && (background || group.read_weight()? == weight) {
            return Ok(());
        }
        group.write_idle(background)?;
        // Clearing cpu.idle leaves the default weight.
        return if background {
            Ok(())
        } else {
            group.write_weight(weight)
        };
    }
    group.write_weight(if background {
        WEIGHT_BACKGROUND
    } else {
        weight
    })
}

/// Soft cap of one cgroup.
#[derive(Debug)]
pub(crate) struct SoftCapLoop {
    group: CpuGroup,
    weight: u32,
    bucket: Bucket,
    clock: CoreClock,
    usage_ns: u64,
    due: Instant,
    sample: SoftCapSample,
}

impl SoftCapLoop {
    /// Starts the loop. `weight`: weight of the group while it is within its cap.
    pub fn new(
        group: CpuGroup,
        (cap, half_life): (SoftCap, HalfLife),
        weight: u32,
        now: Instant,
    ) -> Result<Self> {
        let params = RateCapParams {
            half_life_ns: half_life.half_life_ns,
            soft_permille: Some(cap.permille),
        };
        let bucket = Bucket::new(params, 0).map_err(|error| EngineError::Group {
            name: group.path().display().to_string(),
            problem: error.to_string(),
        })?;
        let mut new = Self {
            usage_ns: group.usage_ns()?,
            group,
            weight,
            bucket,
            clock: CoreClock::starting_at(now),
            due: now + INTERVAL,
            sample: SoftCapSample::default(),
        };
        // An earlier loop may have left another value.
        new.sample.background = new.bucket.is_background();
        set_background(&new.group, new.sample.background, weight)?;
        Ok(new)
    }

    /// Writes the files of the present state again, where another process has changed them.
    pub fn rewrite(&self) -> Result<()> {
        Ok(set_background(
            &self.group,
            self.sample.background,
            self.weight,
        )?)
    }

    /// Runs the loop. Returns when to call again.
    pub fn tick(&mut self, now: Instant) -> Result<Instant> {
        if now < self.due {
            return Ok(self.due);
        }
        self.due = now + INTERVAL;
        let usage_ns = self.group.usage_ns()?;
        let ran_ns = usage_ns.saturating_sub(self.usage_ns);
        self.usage_ns = usage_ns;
        self.sample.rate_ppm = self.bucket.rate_update(ran_ns, self.clock.at(now));
        self.follow()?;
        Ok(self.due)
    }

    /// Follows a change of the bucket's state.
    fn follow(&mut self) -> Result<()> {
        let background = self.bucket.is_background();
        if background != self.sample.background {
            set_background(&self.group, background, self.weight)?;
            self.sample.background = background;
            self.sample.nr_switches += 1;
        }
        Ok(())
    }

    pub fn sample(&self) -> SoftCapSample {
        self.sample
    }
}
