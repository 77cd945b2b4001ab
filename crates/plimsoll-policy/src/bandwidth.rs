//! Bandwidth: quota, period and burst of one group.
//!
//! A [`Pool`] is refilled at each period boundary. Each [`BandwidthCpu`] acquires slices
//! of runtime from it, to which the run time of tasks is charged. A CPU without
//! runtime is throttled until it is served again.
//!
//! ```
//! use plimsoll_policy::bandwidth::{BandwidthCpu, BandwidthParams, Pool};
//!
//! let ms = plimsoll_policy::NSEC_PER_MSEC;
//! let params = BandwidthParams { quota_ns: Some(20 * ms), ..BandwidthParams::default() };
//! let mut pool = Pool::new(params, 0)?;
//! let mut cpu = BandwidthCpu::default();
//!
//! assert!(pool.charge(&mut cpu, 0, 0));
//! assert!(!pool.charge(&mut cpu, 20 * ms, 20 * ms));
//! assert_eq!(pool.refill(true, 100 * ms), 1);
//! # Ok::<(), plimsoll_policy::OutOfRange>(())
//! ```

use std::ffi::c_int;

use crate::{OutOfRange, ffi};

pub const PERIOD_MIN_NS: u64 = ffi::PLIM_PERIOD_MIN_NS;
pub const PERIOD_MAX_NS: u64 = ffi::PLIM_PERIOD_MAX_NS;
pub const PERIOD_DEFAULT_NS: u64 = ffi::PLIM_PERIOD_DEFAULT_NS;
pub const QUOTA_MIN_NS: u64 = ffi::PLIM_QUOTA_MIN_NS;
pub const SLICE_MIN_NS: u64 = ffi::PLIM_SLICE_MIN_NS;
pub const SLICE_MAX_NS: u64 = ffi::PLIM_SLICE_MAX_NS;
pub const SLICE_DEFAULT_NS: u64 = ffi::PLIM_SLICE_DEFAULT_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthParams {
    /// Interval between refills of the pool: [`PERIOD_MIN_NS`] to
    /// [`PERIOD_MAX_NS`].
    pub period_ns: u64,
    /// CPU time per period, at least [`QUOTA_MIN_NS`]; `None` for no limit.
    pub quota_ns: Option<u64>,
    /// Maximum of unused quota that is saved. Quota and burst together are at
    /// most [`RUNTIME_MAX_NS`](crate::RUNTIME_MAX_NS).
    pub burst_ns: u64,
    /// Runtime that a CPU acquires at a time: [`SLICE_MIN_NS`] to
    /// [`SLICE_MAX_NS`].
    pub slice_ns: u64,
}

impl Default for BandwidthParams {
    fn default() -> Self {
        Self {
            period_ns: PERIOD_DEFAULT_NS,
            quota_ns: None,
            burst_ns: 0,
            slice_ns: SLICE_DEFAULT_NS,
        }
    }
}

impl BandwidthParams {
    /// Checks that all parameters are in range.
    ///
    /// # Errors
    ///
    /// If one is not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        // SAFETY: only reads the struct that is passed.
        let result = unsafe { ffi::plim_bandwidth_is_valid(&self.to_raw()) };
        OutOfRange::unless(result != 0)
    }

    fn to_raw(self) -> ffi::plim_bandwidth_params {
        ffi::plim_bandwidth_params {
            period_ns: self.period_ns,
            // The core's value for "no limit" is not a quota that a user may
            // set.
            quota_ns: self.quota_ns.map_or(ffi::PLIM_UNLIMITED, |quota| {
                quota.min(ffi::PLIM_UNLIMITED - 1)
            }),
            burst_ns: self.burst_ns,
            slice_ns: self.slice_ns,
        }
    }
}

/// State of a group on one CPU. Starts without runtime, and not throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandwidthCpu {
    raw: ffi::plim_bandwidth_cpu,
}

impl BandwidthCpu {
    /// Local runtime; negative for a debt.
    #[must_use]
    pub fn runtime_ns(&self) -> i64 {
        self.raw.runtime_ns
    }
}

/// Runtime pool of one group.
///
/// Each CPU belongs to one pool: the one that charged it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    raw: ffi::plim_bandwidth,
}

impl Pool {
    /// Creates the pool with a full quota and no saved burst.
    ///
    /// # Errors
    ///
    /// See [`BandwidthParams::check`].
    pub fn new(params: BandwidthParams, now_ns: u64) -> Result<Self, OutOfRange> {
        params.check()?;
        let mut raw = ffi::plim_bandwidth::default();
        // SAFETY: writes the pool and reads the parameters, which were checked.
        unsafe { ffi::plim_bandwidth_init(&mut raw, &params.to_raw(), now_ns) };
        Ok(Self { raw })
    }

    /// Refills for every boundary passed since the last call, and returns their
    /// number. `burst_on` is the global switch.
    #[inline]
    pub fn refill(&mut self, burst_on: bool, now_ns: u64) -> u64 {
        // SAFETY: accesses only the pool, whose parameters were checked.
        unsafe { ffi::plim_bandwidth_refill(&mut self.raw, c_int::from(burst_on), now_ns) }
    }

    /// Charges a run of `ran_ns` that ended at `now_ns` to a CPU; 0 only
    /// checks. Returns whether the group may continue there. If not, the CPU is
    /// throttled.
    #[inline]
    pub fn charge(&mut self, cpu: &mut BandwidthCpu, ran_ns: u64, now_ns: u64) -> bool {
        // SAFETY: accesses only the pool and the CPU, which are borrowed
        // exclusively.
        unsafe { ffi::plim_bandwidth_charge(&mut self.raw, &mut cpu.raw, ran_ns, now_ns) != 0 }
    }

    /// Charges a run of `ran_ns` to a CPU without acquiring runtime. Used for
    /// the part of a run before a boundary, ahead of [`refill`](Self::refill),
    /// so that each period counts its own usage; and for a task that leaves the
    /// CPU.
    #[inline]
    pub fn book(&mut self, cpu: &mut BandwidthCpu, ran_ns: u64) {
        // SAFETY: accesses only the pool and the CPU, which are borrowed
        // exclusively.
        unsafe { ffi::plim_bandwidth_book(&mut self.raw, &mut cpu.raw, ran_ns) }
    }

    /// Runtime in the pool; 0 if there is no limit.
    #[must_use]
    pub fn runtime_ns(&self) -> u64 {
        self.raw.runtime_ns
    }
}
