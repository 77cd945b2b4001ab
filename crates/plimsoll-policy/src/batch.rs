//! The batch class: the per-CPU [`Limit`], and the room on a CPU.

use crate::ffi;

pub const SLICE_DEFAULT_NS: u64 = ffi::PLIM_BATCH_SLICE_DEFAULT_NS;
/// Window of the per-CPU limit and of the average of [`room_ppm`].
pub const WINDOW_NS: u64 = ffi::PLIM_BATCH_WINDOW_NS;

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
