//! Bandwidth: quota, period and burst of one group.
//!
//! A [`Pool`] is refilled at each period boundary; each [`Cpu`] takes slices
//! from it and charges against them what tasks ran. A CPU with nothing left
//! is throttled until it is served again.
//!
//! ```
//! use plimsoll_policy::bandwidth::{Cpu, Params, Pool};
//!
//! let ms = plimsoll_policy::NSEC_PER_MSEC;
//! let params = Params { quota_ns: Some(20 * ms), ..Params::default() };
//! let mut pool = Pool::new(params, 0)?;
//! let mut cpu = Cpu::default();
//!
//! assert!(pool.charge(&mut cpu, 0, 0));
//! assert!(!pool.charge(&mut cpu, 20 * ms, 20 * ms));
//! assert_eq!(pool.refill(true, 100 * ms), 1);
//! assert!(pool.serve(&mut cpu, 100 * ms));
//! # Ok::<(), plimsoll_policy::bandwidth::ParamError>(())
//! ```

use std::cmp::Ordering;
use std::ffi::c_int;

use thiserror::Error;

use crate::ffi;

/// The shortest period.
pub const PERIOD_MIN_NS: u64 = ffi::PLIM_PERIOD_MIN_NS;
/// The longest period.
pub const PERIOD_MAX_NS: u64 = ffi::PLIM_PERIOD_MAX_NS;
/// The period where none is given.
pub const PERIOD_DEFAULT_NS: u64 = ffi::PLIM_PERIOD_DEFAULT_NS;
/// The smallest quota.
pub const QUOTA_MIN_NS: u64 = ffi::PLIM_QUOTA_MIN_NS;
/// The smallest slice.
pub const SLICE_MIN_NS: u64 = ffi::PLIM_SLICE_MIN_NS;
/// The largest slice.
pub const SLICE_MAX_NS: u64 = ffi::PLIM_SLICE_MAX_NS;
/// The slice where none is given.
pub const SLICE_DEFAULT_NS: u64 = ffi::PLIM_SLICE_DEFAULT_NS;
/// What a CPU keeps when it gives runtime back to the pool.
pub const LOCAL_KEPT_NS: u64 = ffi::PLIM_LOCAL_KEPT_NS;

/// A parameter that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParamError {
    /// The period.
    #[error(
        "period_ns is {value}, allowed are {min} to {max}",
        min = PERIOD_MIN_NS,
        max = PERIOD_MAX_NS
    )]
    Period {
        /// What was given.
        value: u64,
    },
    /// The quota.
    #[error("quota_ns is {value}, allowed are {min} and more, or none", min = QUOTA_MIN_NS)]
    Quota {
        /// What was given.
        value: u64,
    },
    /// Quota and burst together.
    #[error(
        "quota_ns is {quota} and burst_ns is {burst}, allowed is a sum of at most {max}",
        max = crate::RUNTIME_MAX_NS
    )]
    Sum {
        /// The quota that was given, 0 where there was none.
        quota: u64,
        /// The burst that was given.
        burst: u64,
    },
    /// The slice.
    #[error(
        "slice_ns is {value}, allowed are {min} to {max}",
        min = SLICE_MIN_NS,
        max = SLICE_MAX_NS
    )]
    Slice {
        /// What was given.
        value: u64,
    },
}

/// How much CPU time a group may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// How often the pool is refilled: [`PERIOD_MIN_NS`] to [`PERIOD_MAX_NS`].
    pub period_ns: u64,
    /// CPU time per period, at least [`QUOTA_MIN_NS`]; none: no limit.
    pub quota_ns: Option<u64>,
    /// How much unused quota is saved up. Quota and burst together are at
    /// most [`RUNTIME_MAX_NS`](crate::RUNTIME_MAX_NS).
    pub burst_ns: u64,
    /// What a CPU takes at a time: [`SLICE_MIN_NS`] to [`SLICE_MAX_NS`].
    pub slice_ns: u64,
}

impl Default for Params {
    /// No limit, and the defaults of everything else.
    fn default() -> Self {
        Self {
            period_ns: PERIOD_DEFAULT_NS,
            quota_ns: None,
            burst_ns: 0,
            slice_ns: SLICE_DEFAULT_NS,
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
        let raw = self.to_raw();
        // SAFETY: reads the struct it is handed and nothing else.
        match unsafe { ffi::plim_bandwidth_check(&raw) } {
            ffi::PLIM_BANDWIDTH_OK => Ok(()),
            ffi::PLIM_BANDWIDTH_BAD_PERIOD => Err(ParamError::Period {
                value: self.period_ns,
            }),
            ffi::PLIM_BANDWIDTH_BAD_SLICE => Err(ParamError::Slice {
                value: self.slice_ns,
            }),
            ffi::PLIM_BANDWIDTH_BAD_QUOTA => Err(ParamError::Quota {
                value: raw.quota_ns,
            }),
            _ => Err(ParamError::Sum {
                quota: self.quota_ns.unwrap_or(0),
                burst: self.burst_ns,
            }),
        }
    }

    fn to_raw(self) -> ffi::plim_bandwidth_params {
        ffi::plim_bandwidth_params {
            period_ns: self.period_ns,
            // The core's mark for "no limit" is no number that a user may give.
            quota_ns: self.quota_ns.map_or(ffi::PLIM_UNLIMITED, |quota| {
                quota.min(ffi::PLIM_UNLIMITED - 1)
            }),
            burst_ns: self.burst_ns,
            slice_ns: self.slice_ns,
        }
    }

    fn from_raw(raw: &ffi::plim_bandwidth_params) -> Self {
        Self {
            period_ns: raw.period_ns,
            quota_ns: (raw.quota_ns != ffi::PLIM_UNLIMITED).then_some(raw.quota_ns),
            burst_ns: raw.burst_ns,
            slice_ns: raw.slice_ns,
        }
    }
}

/// What a group's bandwidth control has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Periods that ended and in which the group was active.
    pub nr_periods: u64,
    /// Of those, how many ended with a throttled CPU.
    pub nr_throttled: u64,
    /// How long CPUs were throttled, summed over CPUs.
    pub throttled_ns: u64,
    /// Periods whose usage exceeded the quota.
    pub nr_bursts: u64,
    /// By how much they did, summed.
    pub burst_ns: u64,
}

/// One CPU's part of a group. Starts with nothing and unthrottled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    raw: ffi::plim_bandwidth_cpu,
}

impl Cpu {
    /// What is left locally; negative: a debt.
    #[must_use]
    pub fn runtime_ns(&self) -> i64 {
        self.raw.runtime_ns
    }

    /// Whether the group may not run here until it is served.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.raw.throttled != 0
    }

    /// When it was throttled, if it is.
    #[must_use]
    pub fn throttled_at_ns(&self) -> Option<u64> {
        self.is_throttled().then_some(self.raw.throttled_at_ns)
    }
}

/// The pool of runtime of one group.
///
/// A CPU belongs to one pool: the one that charged it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    raw: ffi::plim_bandwidth,
}

impl Pool {
    /// Starts a group. The first quota is there, the burst is yet to be saved.
    ///
    /// # Errors
    ///
    /// See [`Params::check`].
    pub fn new(params: Params, now_ns: u64) -> Result<Self, ParamError> {
        params.check()?;
        let mut raw = ffi::plim_bandwidth::default();
        // SAFETY: writes to the pool and reads the parameters, just checked.
        unsafe { ffi::plim_bandwidth_init(&mut raw, &params.to_raw(), now_ns) };
        Ok(Self { raw })
    }

    /// Changes the parameters of a live group. A changed quota is felt at once;
    /// no debt is forgiven. Serve the throttled CPUs afterwards.
    ///
    /// # Errors
    ///
    /// See [`Params::check`]; then nothing has changed.
    pub fn set(&mut self, params: Params, burst_on: bool, now_ns: u64) -> Result<(), ParamError> {
        params.check()?;
        // SAFETY: writes to the pool and reads the parameters, just checked.
        unsafe {
            ffi::plim_bandwidth_set(
                &mut self.raw,
                &params.to_raw(),
                c_int::from(burst_on),
                now_ns,
            );
        }
        Ok(())
    }

    /// Refills for every boundary passed since the last call, and returns
    /// their number. `burst_on` is the global switch. Where any has passed,
    /// serve the throttled CPUs.
    #[inline]
    pub fn refill(&mut self, burst_on: bool, now_ns: u64) -> u64 {
        // SAFETY: touches the pool only, whose parameters were checked.
        unsafe { ffi::plim_bandwidth_refill(&mut self.raw, c_int::from(burst_on), now_ns) }
    }

    /// Charges a run of `ran_ns` that ended at `now_ns` to a CPU; 0 only asks.
    /// Returns whether the group may go on running there. If not, the CPU is
    /// throttled.
    #[inline]
    pub fn charge(&mut self, cpu: &mut Cpu, ran_ns: u64, now_ns: u64) -> bool {
        // SAFETY: touches the pool and the CPU only, borrowed exclusively.
        unsafe { ffi::plim_bandwidth_charge(&mut self.raw, &mut cpu.raw, ran_ns, now_ns) != 0 }
    }

    /// Books a run of `ran_ns` on a CPU and asks for nothing. For the part of a
    /// run before a boundary, ahead of [`refill`](Self::refill), so that each
    /// period counts what was run in it; and for work that is over.
    #[inline]
    pub fn book(&mut self, cpu: &mut Cpu, ran_ns: u64) {
        // SAFETY: touches the pool and the CPU only, borrowed exclusively.
        unsafe { ffi::plim_bandwidth_book(&mut self.raw, &mut cpu.raw, ran_ns) }
    }

    /// Serves one throttled CPU from the pool, its debt first. Returns whether
    /// it may run again. Where there are several, see
    /// [`serve_in_order`](Self::serve_in_order).
    pub fn serve(&mut self, cpu: &mut Cpu, now_ns: u64) -> bool {
        // SAFETY: touches the pool and the CPU only, borrowed exclusively.
        unsafe { ffi::plim_bandwidth_serve(&mut self.raw, &mut cpu.raw, now_ns) != 0 }
    }

    /// Serves all throttled CPUs in the order in which they were throttled,
    /// until the pool is empty. Returns how many may run again.
    pub fn serve_in_order(&mut self, cpus: &mut [Cpu], now_ns: u64) -> usize {
        let mut queue: Vec<&mut Cpu> = cpus.iter_mut().filter(|cpu| cpu.is_throttled()).collect();

        queue.sort_unstable_by(|a, b| serve_order(a, b));
        let waiting = queue.len();
        queue
            .into_iter()
            .position(|cpu| !self.serve(cpu, now_ns))
            .unwrap_or(waiting)
    }

    /// The group has nothing left to run on this CPU: what it holds goes back
    /// to the pool, all but [`LOCAL_KEPT_NS`], as far as the pool has room. If
    /// anything did, CPUs that are throttled can be served.
    #[inline]
    pub fn give_back(&mut self, cpu: &mut Cpu, burst_on: bool) {
        // SAFETY: touches the pool and the CPU only, borrowed exclusively.
        unsafe {
            ffi::plim_bandwidth_return(&mut self.raw, &mut cpu.raw, c_int::from(burst_on));
        }
    }

    /// What is left in the pool; 0 where there is no limit.
    #[must_use]
    pub fn runtime_ns(&self) -> u64 {
        self.raw.runtime_ns
    }

    /// When the next refill is due.
    #[must_use]
    pub fn next_boundary_ns(&self) -> u64 {
        // SAFETY: reads the pool.
        unsafe { ffi::plim_bandwidth_next_boundary_ns(&self.raw) }
    }

    /// How many CPUs are throttled now.
    #[must_use]
    pub fn nr_throttled_cpus(&self) -> u32 {
        self.raw.nr_throttled_cpus
    }

    /// What is in force.
    #[must_use]
    pub fn params(&self) -> Params {
        Params::from_raw(&self.raw.params)
    }

    /// What has been counted up to the last refill.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let raw = &self.raw.stats;
        Stats {
            nr_periods: raw.nr_periods,
            nr_throttled: raw.nr_throttled,
            throttled_ns: raw.throttled_ns,
            nr_bursts: raw.nr_bursts,
            burst_ns: raw.burst_ns,
        }
    }
}

/// The core's order of service, as a sort wants it.
fn serve_order(a: &Cpu, b: &Cpu) -> Ordering {
    // SAFETY: each call reads two CPUs.
    let (a_first, b_first) = unsafe {
        (
            ffi::plim_bandwidth_serve_before(&a.raw, &b.raw) != 0,
            ffi::plim_bandwidth_serve_before(&b.raw, &a.raw) != 0,
        )
    };
    b_first.cmp(&a_first)
}
