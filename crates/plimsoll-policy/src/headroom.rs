//! Headroom: a share of the CPUs that batch work leaves idle for
//! latency-critical work.
//!
//! A [`Controller`] takes, interval by interval, the CPU time used by batch work
//! and by all other work, and grants batch work CPU time.
//! [`crate::sharing`] shares that grant among batch groups. A [`CoreDemand`] merges the
//! headrooms and tolerances of several groups.

use crate::{OutOfRange, ffi};

pub const WINDOW_DEFAULT_NS: u64 = ffi::PLIM_HEADROOM_WINDOW_DEFAULT_NS;
pub const TOLERANCE_RUNTIME_DEFAULT_NS: u64 = ffi::PLIM_TOLERANCE_RUNTIME_DEFAULT_NS;
pub const TOLERANCE_RUNTIME_MAX_NS: u64 = ffi::PLIM_TOLERANCE_RUNTIME_MAX_NS;
pub const TOLERANCE_PERIOD_DEFAULT_NS: u64 = ffi::PLIM_TOLERANCE_PERIOD_DEFAULT_NS;
pub const TOLERANCE_PERIOD_MIN_NS: u64 = ffi::PLIM_TOLERANCE_PERIOD_MIN_NS;
pub const TOLERANCE_PERIOD_MAX_NS: u64 = ffi::PLIM_TOLERANCE_PERIOD_MAX_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadroomParams {
    /// Window over which the share is kept idle: 10 ms to 10 s.
    pub window_ns: u64,
    /// Between two returns of batch work: 100 µs to `window_ns`.
    pub grain_ns: u64,
    /// CPU time that all batch work together may always use per tolerance
    /// period; with 0 it may starve. At most `tolerance_period_ns` and
    /// [`TOLERANCE_RUNTIME_MAX_NS`].
    pub tolerance_runtime_ns: u64,
    /// Period of the tolerance: [`TOLERANCE_PERIOD_MIN_NS`] to
    /// [`TOLERANCE_PERIOD_MAX_NS`].
    pub tolerance_period_ns: u64,
    /// The share of `nr_cpus` to keep idle, 0 to [`PPM`](crate::PPM).
    pub headroom_ppm: u32,
    /// Number of CPUs, 1 to [`CPUS_MAX`](crate::CPUS_MAX).
    pub nr_cpus: u32,
}

impl HeadroomParams {
    /// Checks that all parameters are in range.
    ///
    /// # Errors
    ///
    /// If one is not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        // SAFETY: only reads the struct that is passed.
        let result = unsafe { ffi::plim_headroom_is_valid(&self.to_raw()) };
        OutOfRange::unless(result != 0)
    }

    fn to_raw(self) -> ffi::plim_headroom_params {
        ffi::plim_headroom_params {
            window_ns: self.window_ns,
            grain_ns: self.grain_ns,
            tolerance_runtime_ns: self.tolerance_runtime_ns,
            tolerance_period_ns: self.tolerance_period_ns,
            headroom_ppm: self.headroom_ppm,
            nr_cpus: self.nr_cpus,
        }
    }

    fn from_raw(raw: &ffi::plim_headroom_params) -> Self {
        Self {
            window_ns: raw.window_ns,
            grain_ns: raw.grain_ns,
            tolerance_runtime_ns: raw.tolerance_runtime_ns,
            tolerance_period_ns: raw.tolerance_period_ns,
            headroom_ppm: raw.headroom_ppm,
            nr_cpus: raw.nr_cpus,
        }
    }
}

/// A headroom of `cpus` whole CPUs as a share of `nr_cpus`, in ppm, rounded up;
/// at most the whole.
#[must_use]
pub fn from_cpus_ppm(cpus: u32, nr_cpus: u32) -> u32 {
    // SAFETY: a pure function of two integers; it divides by nr_cpus only if
    // that is larger than cpus, and so not 0.
    unsafe { ffi::plim_headroom_from_cpus_ppm(cpus, nr_cpus) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    raw: ffi::plim_headroom,
}

impl Controller {
    /// Creates a controller that has not granted anything yet.
    ///
    /// # Errors
    ///
    /// See [`HeadroomParams::check`].
    pub fn new(params: HeadroomParams, now_ns: u64) -> Result<Self, OutOfRange> {
        params.check()?;
        let mut raw = ffi::plim_headroom::default();
        // SAFETY: writes the controller and reads the parameters, which were
        // checked.
        unsafe { ffi::plim_headroom_init(&mut raw, &params.to_raw(), now_ns) };
        Ok(Self { raw })
    }

    /// Changes the parameters; credit and debt are clamped to the new bounds.
    ///
    /// # Errors
    ///
    /// See [`HeadroomParams::check`]; on an error nothing changes.
    pub fn set(&mut self, params: HeadroomParams) -> Result<(), OutOfRange> {
        params.check()?;
        // SAFETY: writes the controller and reads the parameters, which were
        // checked.
        unsafe { ffi::plim_headroom_set(&mut self.raw, &params.to_raw()) };
        Ok(())
    }

    /// Ends the interval since the last update, in which batch work used
    /// `batch_ns` and all other work `nonbatch_ns`, summed over CPUs and clamped
    /// to the capacity of the CPUs. Returns the CPU time that batch work may
    /// use from now on.
    pub fn update(&mut self, nonbatch_ns: u64, batch_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: accesses only the controller, whose parameters were checked.
        unsafe { ffi::plim_headroom_update(&mut self.raw, nonbatch_ns, batch_ns, now_ns) }
    }

    /// Whether a group that has used up its share of an earlier grant may have a share of the
    /// present one at this update. `returned_ns`: time of the update at which a group last had.
    #[must_use]
    pub fn may_return(&self, returned_ns: u64) -> bool {
        // SAFETY: reads the controller, whose parameters were checked.
        unsafe { ffi::plim_headroom_may_return(&self.raw, returned_ns) != 0 }
    }

    /// The most that batch work may use of an earlier grant until the next return: the present
    /// grant, and no more than the law gives until then if other work goes on as in the last
    /// interval. `returned_ns`: as in [`may_return`](Self::may_return).
    #[must_use]
    pub fn rest_ns(&self, returned_ns: u64) -> u64 {
        // SAFETY: reads the controller, whose parameters were checked.
        unsafe { ffi::plim_headroom_rest_ns(&self.raw, returned_ns) }
    }

    /// Share of the grant for a return at this moment: without credit from before a jump of the
    /// other load.
    #[must_use]
    pub fn return_ns(&self) -> u64 {
        // SAFETY: reads the controller, whose parameters were checked.
        unsafe { ffi::plim_headroom_return_ns(&self.raw) }
    }

    /// CPU time that the law gave batch work for the last interval alone.
    #[must_use]
    pub fn allowance_ns(&self) -> u64 {
        self.raw.allowance_ns
    }

    /// Credit of batch work under the law; negative if overdrawn.
    #[must_use]
    pub fn credit_ns(&self) -> i64 {
        self.raw.credit_ns
    }

    /// Integral of (headroom − idle) while batch work ran above its tolerance,
    /// in CPU time since the start.
    #[must_use]
    pub fn shortfall_ns(&self) -> u64 {
        self.raw.shortfall_ns
    }

    #[must_use]
    pub fn params(&self) -> HeadroomParams {
        HeadroomParams::from_raw(&self.raw.params)
    }
}

/// Idle CPU that a group asks for, in one of the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreHeadroom {
    /// A share of all CPUs on average, in ppm. More than [`PPM`](crate::PPM)
    /// counts as that.
    Share(u32),
    /// Number of CPUs that are idle at every instant.
    Cpus(u32),
}

/// CPU time that all batch work together may always have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTolerance {
    /// CPU time per period.
    pub runtime_ns: u64,
    /// 0 counts as no tolerance; any other value out of range as the nearest
    /// in range.
    pub period_ns: u64,
}

/// Demand of several groups: the largest headroom and the smallest tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreDemand {
    raw: ffi::plim_headroom_demand,
}

impl Default for CoreDemand {
    fn default() -> Self {
        let mut raw = ffi::plim_headroom_demand::default();
        // SAFETY: writes to the struct it is handed and nothing else.
        unsafe { ffi::plim_headroom_demand_init(&mut raw) };
        Self { raw }
    }
}

impl CoreDemand {
    /// Counts one group. A headroom without a tolerance brings the default one
    /// along.
    pub fn add(&mut self, headroom: Option<CoreHeadroom>, tolerance: Option<CoreTolerance>) {
        let (form, value) = match headroom {
            None => (ffi::PLIM_HEADROOM_FORM_NONE, 0),
            Some(CoreHeadroom::Share(ppm)) => (ffi::PLIM_HEADROOM_FORM_SHARE, ppm),
            Some(CoreHeadroom::Cpus(cpus)) => (ffi::PLIM_HEADROOM_FORM_CPUS, cpus),
        };
        let (runtime_ns, period_ns) = tolerance.map_or((0, 0), |it| (it.runtime_ns, it.period_ns));
        // SAFETY: touches the struct it is handed; takes any numbers.
        unsafe {
            ffi::plim_headroom_demand_add(&mut self.raw, form, value, runtime_ns, period_ns);
        }
    }

    fn in_form(&self, form: ffi::plim_headroom_form) -> Option<CoreHeadroom> {
        match form {
            ffi::PLIM_HEADROOM_FORM_SHARE => Some(CoreHeadroom::Share(self.raw.headroom_ppm)),
            ffi::PLIM_HEADROOM_FORM_CPUS => Some(CoreHeadroom::Cpus(self.raw.headroom_cpus)),
            _ => None,
        }
    }

    /// The headroom in force on `nr_cpus` CPUs: the largest share or the largest
    /// number of CPUs, whichever is more.
    #[must_use]
    pub fn in_force(&self, nr_cpus: u32) -> Option<CoreHeadroom> {
        // SAFETY: reads the struct.
        self.in_form(unsafe { ffi::plim_headroom_demand_in_force(&self.raw, nr_cpus) })
    }

    /// The largest headroom in the other form, which is not in force.
    #[must_use]
    pub fn overruled(&self, nr_cpus: u32) -> Option<CoreHeadroom> {
        // SAFETY: reads the struct.
        self.in_form(unsafe { ffi::plim_headroom_demand_overruled(&self.raw, nr_cpus) })
    }

    /// The smallest tolerance; the default where no group has brought one.
    #[must_use]
    pub fn tolerance(&self) -> CoreTolerance {
        CoreTolerance {
            runtime_ns: self.raw.tolerance_runtime_ns,
            period_ns: self.raw.tolerance_period_ns,
        }
    }
}
