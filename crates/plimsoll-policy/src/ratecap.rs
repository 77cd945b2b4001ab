//! Soft rate cap of a task or of a group that shares one [`Bucket`]. It applies to
//! the usage rate, a decaying average. Hard caps are decided in the kernel alone.

use crate::{OutOfRange, ffi};

pub const CAP_MIN_PERMILLE: u32 = ffi::PLIM_CAP_MIN_PERMILLE;
pub const CAP_MAX_PERMILLE: u32 = ffi::PLIM_CAP_MAX_PERMILLE;
pub const DEPTH_DEFAULT_NS: u64 = ffi::PLIM_CAP_DEPTH_DEFAULT_NS;
pub const HALF_LIFE_DEFAULT_NS: u64 = ffi::PLIM_HALF_LIFE_DEFAULT_NS;
pub const HALF_LIFE_MIN_NS: u64 = ffi::PLIM_HALF_LIFE_MIN_NS;
pub const HALF_LIFE_MAX_NS: u64 = ffi::PLIM_HALF_LIFE_MAX_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCapParams {
    /// Half-life of the usage rate: [`HALF_LIFE_MIN_NS`] to
    /// [`HALF_LIFE_MAX_NS`].
    pub half_life_ns: u64,
    /// Soft cap in per mille of one CPU; 0 for always background, `None` for no
    /// soft cap.
    pub soft_permille: Option<u32>,
}

impl Default for RateCapParams {
    fn default() -> Self {
        Self {
            half_life_ns: HALF_LIFE_DEFAULT_NS,
            soft_permille: None,
        }
    }
}

impl RateCapParams {
    /// Checks that all parameters are in range.
    ///
    /// # Errors
    ///
    /// If one is not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        // SAFETY: only reads the struct that is passed.
        let result = unsafe { ffi::plim_ratecap_is_valid(&self.to_raw()) };
        OutOfRange::unless(result != 0)
    }

    fn to_raw(self) -> ffi::plim_ratecap_params {
        ffi::plim_ratecap_params {
            depth_ns: DEPTH_DEFAULT_NS,
            half_life_ns: self.half_life_ns,
            hard_permille: 0,
            soft_permille: self.soft_permille.unwrap_or(0),
            soft: u8::from(self.soft_permille.is_some()),
        }
    }
}

/// State of one capped task or group, which the other comments call the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    params: RateCapParams,
    raw: ffi::plim_ratecap,
}

impl Bucket {
    /// Creates an empty bucket with a usage rate of 0.
    ///
    /// # Errors
    ///
    /// See [`RateCapParams::check`].
    pub fn new(params: RateCapParams, now_ns: u64) -> Result<Self, OutOfRange> {
        params.check()?;
        let mut raw = ffi::plim_ratecap::default();
        // SAFETY: writes only the bucket.
        unsafe { ffi::plim_ratecap_init(&mut raw, now_ns) };
        Ok(Self { params, raw })
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
    pub fn params(&self) -> RateCapParams {
        self.params
    }
}

#[cfg(test)]
mod tests;
