//! The batch class: the per-CPU [`Limit`], and load balancing.

use crate::ffi;

pub const SLICE_DEFAULT_NS: u64 = ffi::PLIM_BATCH_SLICE_DEFAULT_NS;
/// Window of the per-CPU limit and of the average of [`room_ppm`].
pub const WINDOW_NS: u64 = ffi::PLIM_BATCH_WINDOW_NS;
/// Wait after which a batch task moves to a CPU that is free for it.
pub const WAIT_MAX_NS: u64 = ffi::PLIM_BATCH_WAIT_MAX_NS;

/// Per-CPU limit: the share of one CPU that the batch work of a group may use,
/// by window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    raw: ffi::plim_batch_limit,
}

impl Limit {
    /// Creates a limit whose first window starts now.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            raw: ffi::plim_batch_limit {
                window_ns: now_ns,
                used_ns: 0,
            },
        }
    }

    /// Charges `ran_ns` of batch work to the CPU; 0 only checks. `limit_ppm` is
    /// a share of this CPU, at most [`PPM`](crate::PPM). Returns how long batch
    /// work may still run in this window; if 0, it may not run before
    /// [`until_ns`](Self::until_ns).
    pub fn charge(&mut self, limit_ppm: u32, ran_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: accesses only the limit.
        unsafe { ffi::plim_batch_limit_charge(&mut self.raw, limit_ppm, ran_ns, now_ns) }
    }

    /// End of the current window.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        // SAFETY: reads the limit.
        unsafe { ffi::plim_batch_limit_until_ns(&self.raw) }
    }

    /// Time charged to the current window, including the excess of the last
    /// one.
    #[must_use]
    pub fn used_ns(&self) -> u64 {
        self.raw.used_ns
    }
}

/// Time that a limit of `limit_ppm` of one CPU allows in a window of
/// [`WINDOW_NS`].
#[must_use]
pub fn limit_ns(limit_ppm: u32) -> u64 {
    // SAFETY: a pure function of one integer, defined for all of them.
    unsafe { ffi::plim_batch_limit_ns(limit_ppm) }
}

/// Share of a CPU that is left for batch work, averaged over about
/// [`WINDOW_NS`], in ppm. Updates the average `room_ppm` with the last
/// `elapsed_ns`, of which normal tasks ran `normal_ns`.
#[must_use]
pub fn room_ppm(room_ppm: u32, normal_ns: u64, elapsed_ns: u64) -> u32 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_batch_room_ppm(room_ppm, normal_ns, elapsed_ns) }
}

/// State of one CPU for load balancing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Time that the CPU's first batch task has waited.
    pub waited_ns: u64,
    pub nr_queued: u32,
    /// See [`room_ppm`].
    pub room_ppm: u32,
    pub running_normal: bool,
    pub running_batch: bool,
    /// Whether every sibling of the CPU's core is idle.
    pub core_idle: bool,
}

impl Cpu {
    fn to_raw(self) -> ffi::plim_batch_cpu {
        ffi::plim_batch_cpu {
            waited_ns: self.waited_ns,
            nr_queued: self.nr_queued,
            room_ppm: self.room_ppm,
            running_normal: u8::from(self.running_normal),
            running_batch: u8::from(self.running_batch),
            core_idle: u8::from(self.core_idle),
        }
    }
}

/// Expected wait of a batch task that joins this CPU's queue. Slices above one
/// second are clamped.
#[must_use]
pub fn expected_wait_ns(cpu: &Cpu, slice_ns: u64) -> u64 {
    // SAFETY: only reads the struct that is passed.
    unsafe { ffi::plim_batch_expected_wait_ns(&cpu.to_raw(), slice_ns) }
}

/// Whether CPU `a` is a better choice for a batch task than CPU `b`: by the
/// shorter expected wait, then a core that is idle as a whole, then the larger
/// room.
#[must_use]
pub fn better_cpu(a: &Cpu, b: &Cpu, slice_ns: u64) -> bool {
    // SAFETY: only reads the structs that are passed.
    unsafe { ffi::plim_batch_better_cpu(&a.to_raw(), &b.to_raw(), slice_ns) != 0 }
}

/// Whether CPU `to`, which is about to go idle or to run batch work, takes the
/// first waiting task of CPU `from`.
#[must_use]
pub fn should_pull(from: &Cpu, to: &Cpu, slice_ns: u64) -> bool {
    // SAFETY: only reads the structs that are passed.
    unsafe { ffi::plim_batch_should_pull(&from.to_raw(), &to.to_raw(), slice_ns) != 0 }
}
