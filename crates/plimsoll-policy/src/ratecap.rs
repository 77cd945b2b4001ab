//! Rate caps, hard and soft, of a task or of a group that shares one
//! [`Bucket`].
//!
//! The hard cap is a leaky bucket by virtual scheduling: over any interval `t`
//! usage is at most `cap · t + depth`, and whoever stays below is never
//! delayed. The soft cap looks at the usage rate, a decaying average.

use thiserror::Error;

use crate::ffi;

/// The smallest hard cap, in per mille of one CPU.
pub const CAP_MIN_PERMILLE: u32 = ffi::PLIM_CAP_MIN_PERMILLE;
/// The largest cap, in per mille of one CPU.
pub const CAP_MAX_PERMILLE: u32 = ffi::PLIM_CAP_MAX_PERMILLE;
/// The depth where none is given.
pub const DEPTH_DEFAULT_NS: u64 = ffi::PLIM_CAP_DEPTH_DEFAULT_NS;
/// The largest depth.
pub const DEPTH_MAX_NS: u64 = ffi::PLIM_CAP_DEPTH_MAX_NS;
/// The half-life of the usage rate where none is given.
pub const HALF_LIFE_DEFAULT_NS: u64 = ffi::PLIM_HALF_LIFE_DEFAULT_NS;
/// The shortest half-life.
pub const HALF_LIFE_MIN_NS: u64 = ffi::PLIM_HALF_LIFE_MIN_NS;
/// The longest half-life.
pub const HALF_LIFE_MAX_NS: u64 = ffi::PLIM_HALF_LIFE_MAX_NS;

/// A parameter that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParamError {
    /// The hard cap.
    #[error("hard_permille is {value}, allowed are 0 (no cap) to {max}", max = CAP_MAX_PERMILLE)]
    HardCap {
        /// What was given.
        value: u32,
    },
    /// The soft cap.
    #[error("soft_permille is {value}, allowed are 0 to {max}, or none", max = CAP_MAX_PERMILLE)]
    SoftCap {
        /// What was given.
        value: u32,
    },
    /// The depth.
    #[error("depth_ns is {value}, allowed are 0 to {max}", max = DEPTH_MAX_NS)]
    Depth {
        /// What was given.
        value: u64,
    },
    /// The half-life.
    #[error(
        "half_life_ns is {value}, allowed are {min} to {max}",
        min = HALF_LIFE_MIN_NS,
        max = HALF_LIFE_MAX_NS
    )]
    HalfLife {
        /// What was given.
        value: u64,
    },
}

/// The caps of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// How much may be run at once, at most [`DEPTH_MAX_NS`]; give no less
    /// than the grain of the timers that enforce it.
    pub depth_ns: u64,
    /// Of the usage rate: [`HALF_LIFE_MIN_NS`] to [`HALF_LIFE_MAX_NS`].
    pub half_life_ns: u64,
    /// In per mille of one CPU; 0: no hard cap.
    pub hard_permille: u32,
    /// In per mille of one CPU; 0: always background; none: no soft cap.
    pub soft_permille: Option<u32>,
}

impl Default for Params {
    /// No caps, and the defaults of everything else.
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
    /// Whether all parameters are in range.
    ///
    /// # Errors
    ///
    /// Names the first that is not.
    pub fn check(&self) -> Result<(), ParamError> {
        // SAFETY: reads the struct it is handed and nothing else.
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

/// The state of one capped task or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    params: Params,
    raw: ffi::plim_ratecap,
}

impl Bucket {
    /// Starts with an empty bucket and a usage rate of 0.
    ///
    /// # Errors
    ///
    /// See [`Params::check`].
    pub fn new(params: Params, now_ns: u64) -> Result<Self, ParamError> {
        params.check()?;
        let mut raw = ffi::plim_ratecap::default();
        // SAFETY: writes to the bucket only.
        unsafe { ffi::plim_ratecap_init(&mut raw, now_ns) };
        Ok(Self { params, raw })
    }

    /// Changes the caps. The bucket keeps what it holds, as CPU time.
    ///
    /// # Errors
    ///
    /// See [`Params::check`]; then nothing has changed.
    pub fn set(&mut self, params: Params, now_ns: u64) -> Result<(), ParamError> {
        params.check()?;
        let old = self.params.to_raw();
        // SAFETY: writes to the bucket and reads both parameters, which were
        // checked.
        unsafe { ffi::plim_ratecap_set(&mut self.raw, &old, &params.to_raw(), now_ns) };
        self.params = params;
        Ok(())
    }

    /// Whether the owner may run now. An owner that is exiting always may.
    #[must_use]
    pub fn may_run(&self, now_ns: u64) -> bool {
        // SAFETY: reads the bucket and the parameters, which were checked.
        unsafe { ffi::plim_ratecap_may_run(&self.raw, &self.params.to_raw(), now_ns) != 0 }
    }

    /// When the owner may run next; not later than now means now.
    #[must_use]
    pub fn eligible_ns(&self) -> u64 {
        // SAFETY: reads the bucket and the parameters, which were checked.
        unsafe { ffi::plim_ratecap_eligible_ns(&self.raw, &self.params.to_raw()) }
    }

    /// For how long `nr_running` CPUs (0 counts as 1) may go on together from
    /// now before the bucket is full: the longest run that, once charged for
    /// each of them, leaves the owner allowed to run at its end. What they ran
    /// before counts once it is charged.
    ///
    /// 0 if the owner may not run, or not for a whole nanosecond; none if it
    /// may for ever: there is no hard cap, or they run no faster than it.
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
        // SAFETY: touches the bucket and reads the parameters, which were
        // checked.
        unsafe {
            ffi::plim_ratecap_charge(&mut self.raw, &self.params.to_raw(), start_ns, ran_ns);
        }
    }

    /// Moves the usage rate forward to `now_ns`: since the last update the
    /// owner ran `ran_ns`, over all its CPUs. Returns the rate in ppm of one
    /// CPU. An interval of no length changes nothing; what ran in it belongs to
    /// the next.
    pub fn rate_update(&mut self, ran_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: touches the bucket and reads the parameters, which were
        // checked.
        unsafe {
            ffi::plim_ratecap_rate_update(&mut self.raw, &self.params.to_raw(), ran_ns, now_ns)
        }
    }

    /// The usage rate at its last update, in ppm of one CPU.
    #[must_use]
    pub fn rate_ppm(&self) -> u64 {
        self.raw.rate_ppm
    }

    /// Whether the owner is over its soft cap, hence in the background.
    #[must_use]
    pub fn is_background(&self) -> bool {
        // SAFETY: reads the bucket and the parameters, which were checked.
        unsafe { ffi::plim_ratecap_is_background(&self.raw, &self.params.to_raw()) != 0 }
    }

    /// What is in force.
    #[must_use]
    pub fn params(&self) -> Params {
        self.params
    }
}

/// What is left of an average after `elapsed_ns`: `2^(-elapsed / half_life)`
/// in ppm.
#[must_use]
pub fn decay_ppm(elapsed_ns: u64, half_life_ns: u64) -> u64 {
    // SAFETY: a pure function of two integers, defined for all of them.
    unsafe { ffi::plim_ratecap_decay_ppm(elapsed_ns, half_life_ns) }
}
