//! Rate caps, hard and soft, of a task or of a group that shares one
//! [`Bucket`].
//!
//! The hard cap is a leaky bucket by virtual scheduling: over any interval `t`
//! usage is at most `cap · t + depth`, and an owner that stays below the cap is
//! never delayed. The soft cap applies to the usage rate, a decaying average.

use thiserror::Error;

use crate::ffi;

pub const CAP_MIN_PERMILLE: u32 = ffi::PLIM_CAP_MIN_PERMILLE;
pub const CAP_MAX_PERMILLE: u32 = ffi::PLIM_CAP_MAX_PERMILLE;
pub const DEPTH_DEFAULT_NS: u64 = ffi::PLIM_CAP_DEPTH_DEFAULT_NS;
pub const DEPTH_MAX_NS: u64 = ffi::PLIM_CAP_DEPTH_MAX_NS;
pub const HALF_LIFE_DEFAULT_NS: u64 = ffi::PLIM_HALF_LIFE_DEFAULT_NS;
pub const HALF_LIFE_MIN_NS: u64 = ffi::PLIM_HALF_LIFE_MIN_NS;
pub const HALF_LIFE_MAX_NS: u64 = ffi::PLIM_HALF_LIFE_MAX_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParamError {
    #[error("hard_permille is {value}, allowed are 0 (no cap) to {max}", max = CAP_MAX_PERMILLE)]
    HardCap { value: u32 },
    #[error("soft_permille is {value}, allowed are 0 to {max}, or none", max = CAP_MAX_PERMILLE)]
    SoftCap { value: u32 },
    #[error("depth_ns is {value}, allowed are 0 to {max}", max = DEPTH_MAX_NS)]
    Depth { value: u64 },
    #[error(
        "half_life_ns is {value}, allowed are {min} to {max}",
        min = HALF_LIFE_MIN_NS,
        max = HALF_LIFE_MAX_NS
    )]
    HalfLife { value: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// CPU time that may be used at once, at most [`DEPTH_MAX_NS`]. Should be
    /// at least the granularity of the timers that enforce the cap.
    pub depth_ns: u64,
    /// Half-life of the usage rate: [`HALF_LIFE_MIN_NS`] to
    /// [`HALF_LIFE_MAX_NS`].
    pub half_life_ns: u64,
    /// Hard cap in per mille of one CPU; 0 for none.
    pub hard_permille: u32,
    /// Soft cap in per mille of one CPU; 0 for always background, `None` for no
    /// soft cap.
    pub soft_permille: Option<u32>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            depth_ns: DEPTH_DEFAULT_NS,
            half_life_ns: HALF_LIFE_DEFAULT_NS,
            hard_permille: 0,
            soft_permille: None,
        }
    }
}

impl Params {
    /// Checks that all parameters are in range.
    ///
    /// # Errors
    ///
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), ParamError> {
        // SAFETY: only reads the struct that is passed.
        match unsafe { ffi::plim_ratecap_check(&self.to_raw()) } {
            ffi::PLIM_RATECAP_OK => Ok(()),
            ffi::PLIM_RATECAP_BAD_HARD => Err(ParamError::HardCap {
                value: self.hard_permille,
            }),
            ffi::PLIM_RATECAP_BAD_SOFT => Err(ParamError::SoftCap {
                value: self.soft_permille.unwrap_or(0),
            }),
            ffi::PLIM_RATECAP_BAD_DEPTH => Err(ParamError::Depth {
                value: self.depth_ns,
            }),
            _ => Err(ParamError::HalfLife {
                value: self.half_life_ns,
            }),
        }
    }

    fn to_raw(self) -> ffi::plim_ratecap_params {
        ffi::plim_ratecap_params {
            depth_ns: self.depth_ns,
            half_life_ns: self.half_life_ns,
            hard_permille: self.hard_permille,
            soft_permille: self.soft_permille.unwrap_or(0),
            soft: u8::from(self.soft_permille.is_some()),
        }
    }
}

/// State of one capped task or group, which the other comments call the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    params: Params,
    raw: ffi::plim_ratecap,
}

impl Bucket {
    /// Creates an empty bucket with a usage rate of 0.
    ///
    /// # Errors
    ///
    /// See [`Params::check`].
    pub fn new(params: Params, now_ns: u64) -> Result<Self, ParamError> {
        params.check()?;
        let mut raw = ffi::plim_ratecap::default();
        // SAFETY: writes only the bucket.
        unsafe { ffi::plim_ratecap_init(&mut raw, now_ns) };
        Ok(Self { params, raw })
    }

    /// Whether the owner may run now. Exiting owners may always run.
    #[must_use]
    pub fn may_run(&self, now_ns: u64) -> bool {
        // SAFETY: reads the bucket and the parameters, which were checked.
        unsafe { ffi::plim_ratecap_may_run(&self.raw, &self.params.to_raw(), now_ns) != 0 }
    }

    /// How long `nr_running` CPUs (0 counts as 1) may run together from now on:
    /// the longest run after which, charged for each of them, the owner may
    /// still run. Earlier runs that are not charged yet are not included.
    ///
    /// 0 if the owner may not run for a whole nanosecond; `None` if it may run
    /// for ever, because there is no hard cap or the CPUs do not exceed it.
    #[must_use]
    pub fn run_ns(&self, nr_running: u32, now_ns: u64) -> Option<u64> {
        // SAFETY: reads the bucket and the parameters, which were checked.
        let run_ns = unsafe {
            ffi::plim_ratecap_run_ns(&self.raw, &self.params.to_raw(), nr_running, now_ns)
        };
        (run_ns != ffi::PLIM_UNLIMITED).then_some(run_ns)
    }

    /// Charges a run of `ran_ns` that began at `start_ns` against the hard
    /// cap.
    pub fn charge(&mut self, start_ns: u64, ran_ns: u64) {
        // SAFETY: accesses the bucket and reads the parameters, which were
        // checked.
        unsafe {
            ffi::plim_ratecap_charge(&mut self.raw, &self.params.to_raw(), start_ns, ran_ns);
        }
    }

    /// Advances the usage rate to `now_ns`; since the last update the owner ran
    /// `ran_ns`, over all its CPUs. Returns the rate in ppm of one CPU. An
    /// empty interval changes nothing; its run time must be added to the next
    /// one.
    pub fn rate_update(&mut self, ran_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: accesses the bucket and reads the parameters, which were
        // checked.
        unsafe {
            ffi::plim_ratecap_rate_update(&mut self.raw, &self.params.to_raw(), ran_ns, now_ns)
        }
    }

    /// Usage rate at its last update, in ppm of one CPU.
    #[must_use]
    pub fn rate_ppm(&self) -> u64 {
        self.raw.rate_ppm
    }

    /// Whether the owner is over its soft cap, and so in the background.
    #[must_use]
    pub fn is_background(&self) -> bool {
        // SAFETY: reads the bucket and the parameters, which were checked.
        unsafe { ffi::plim_ratecap_is_background(&self.raw, &self.params.to_raw()) != 0 }
    }

    #[must_use]
    pub fn params(&self) -> Params {
        self.params
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decay_is_a_power_of_two(
            elapsed_ns in 0..=400_000_000_000u64,
            half_life_ns in HALF_LIFE_MIN_NS..=HALF_LIFE_MAX_NS,
        ) {
            let exact = (-(elapsed_ns as f64) / half_life_ns as f64).exp2() * 1e6;
            // SAFETY: a pure function of two integers, defined for all of them.
            let decay = unsafe { ffi::plim_ratecap_decay_ppm(elapsed_ns, half_life_ns) } as f64;
            prop_assert!((decay - exact).abs() <= exact * 0.0003 + 1.5, "{} {}", decay, exact);
        }
    }
}
