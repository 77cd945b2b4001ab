//! The batch class: order among batch tasks, the per-CPU [`Limit`], and what
//! load balancing goes by.

use crate::ffi;

/// The lowest nice value, of the most weight.
pub const NICE_MIN: i32 = ffi::PLIM_NICE_MIN;
/// The highest nice value, of the least weight.
pub const NICE_MAX: i32 = ffi::PLIM_NICE_MAX;
/// The weight of nice 0, and the unit of virtual runtime.
pub const WEIGHT_NICE_0: u32 = ffi::PLIM_WEIGHT_NICE_0;
/// The smallest weight of a group.
pub const GROUP_WEIGHT_MIN: u32 = ffi::PLIM_GROUP_WEIGHT_MIN;
/// The largest weight of a group.
pub const GROUP_WEIGHT_MAX: u32 = ffi::PLIM_GROUP_WEIGHT_MAX;
/// A group's weight where none is given; counts as much as a task of nice 0.
pub const GROUP_WEIGHT_DEFAULT: u32 = ffi::PLIM_GROUP_WEIGHT_DEFAULT;
/// How long a batch task runs at a time where nothing else is said.
pub const SLICE_DEFAULT_NS: u64 = ffi::PLIM_BATCH_SLICE_DEFAULT_NS;
/// The window of the per-CPU limit and of the room average.
pub const WINDOW_NS: u64 = ffi::PLIM_BATCH_WINDOW_NS;
/// A batch task that waited this long moves to a CPU that is free for it.
pub const WAIT_MAX_NS: u64 = ffi::PLIM_BATCH_WAIT_MAX_NS;

/// The weight of a nice level, 1.25 per level. A nice value out of range
/// counts as the nearest in range.
#[must_use]
pub fn weight(nice: i32) -> u32 {
    // SAFETY: a pure function of one integer, defined for all of them.
    unsafe { ffi::plim_batch_weight(nice) }
}

/// The weight of a group of cgroup v2 `cpu.weight` `group_weight`, in the unit
/// of task weights. Out of range counts as the nearest in range.
#[must_use]
pub fn group_weight(group_weight: u32) -> u32 {
    // SAFETY: a pure function of one integer, defined for all of them.
    unsafe { ffi::plim_batch_group_weight(group_weight) }
}

/// How far running `ran_ns` moves the virtual runtime of a task or group of
/// this weight. Rounded up: time is never free.
#[must_use]
#[inline]
pub fn vruntime_delta(ran_ns: u64, weight: u32) -> u64 {
    // SAFETY: a pure function of two integers, defined for all of them.
    unsafe { ffi::plim_batch_vruntime_delta(ran_ns, weight) }
}

/// Whether virtual runtime `a` runs before `b`, also after a wrap.
#[must_use]
#[inline]
pub fn before(a_vruntime: u64, b_vruntime: u64) -> bool {
    // SAFETY: a pure function of two integers, defined for all of them.
    unsafe { ffi::plim_batch_before(a_vruntime, b_vruntime) != 0 }
}

/// The later of two virtual runtimes: what a queue's minimum moves to.
#[must_use]
#[inline]
pub fn later(a_vruntime: u64, b_vruntime: u64) -> u64 {
    // SAFETY: a pure function of two integers, defined for all of them.
    unsafe { ffi::plim_batch_later(a_vruntime, b_vruntime) }
}

/// Where a task that slept, or is new, joins a queue: where it was, but no
/// further back than one slice before the queue's minimum.
#[must_use]
#[inline]
pub fn place(vruntime: u64, min_vruntime: u64, slice_ns: u64, weight: u32) -> u64 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_batch_place(vruntime, min_vruntime, slice_ns, weight) }
}

/// A virtual runtime carried from one queue to another: its distance from the
/// minimum stays.
#[must_use]
#[inline]
pub fn migrate(vruntime: u64, from_min_vruntime: u64, to_min_vruntime: u64) -> u64 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_batch_migrate(vruntime, from_min_vruntime, to_min_vruntime) }
}

/// How much of one CPU the batch work of a group may use, window by window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    raw: ffi::plim_batch_limit,
}

impl Limit {
    /// The first window starts now.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            raw: ffi::plim_batch_limit {
                window_ns: now_ns,
                used_ns: 0,
            },
        }
    }

    /// Charges `ran_ns` of batch work to the CPU; 0 only asks. `limit_ppm` is
    /// a share of this CPU; more than [`PPM`](crate::PPM) counts as all of it.
    /// Returns how long batch work may still run in this window; 0: not before
    /// [`until_ns`](Self::until_ns).
    pub fn charge(&mut self, limit_ppm: u32, ran_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: touches the limit only.
        unsafe { ffi::plim_batch_limit_charge(&mut self.raw, limit_ppm, ran_ns, now_ns) }
    }

    /// When the present window ends.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        // SAFETY: reads the limit.
        unsafe { ffi::plim_batch_limit_until_ns(&self.raw) }
    }

    /// What is charged to the present window, with what the last one ran too
    /// long.
    #[must_use]
    pub fn used_ns(&self) -> u64 {
        self.raw.used_ns
    }
}

/// What a limit of `limit_ppm` of one CPU allows in one window of
/// [`WINDOW_NS`].
#[must_use]
pub fn limit_ns(limit_ppm: u32) -> u64 {
    // SAFETY: a pure function of one integer, defined for all of them.
    unsafe { ffi::plim_batch_limit_ns(limit_ppm) }
}

/// How much of a CPU is left for batch work, averaged over about
/// [`WINDOW_NS`]: the average so far, moved by what the last `elapsed_ns`
/// showed, of which normal tasks ran `normal_ns`. In ppm.
#[must_use]
pub fn room_ppm(room_ppm: u32, normal_ns: u64, elapsed_ns: u64) -> u32 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_batch_room_ppm(room_ppm, normal_ns, elapsed_ns) }
}

/// What load balancing knows of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// How long its first batch task has waited.
    pub waited_ns: u64,
    /// Batch tasks queued there.
    pub nr_queued: u32,
    /// See [`room_ppm`].
    pub room_ppm: u32,
    /// A normal task runs there now.
    pub running_normal: bool,
    /// A batch task runs there now.
    pub running_batch: bool,
    /// Every sibling of its core is idle.
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

/// How soon a batch task that joins this CPU's queue can expect its turn.
/// Slices above one second count as that.
#[must_use]
pub fn expected_wait_ns(cpu: &Cpu, slice_ns: u64) -> u64 {
    // SAFETY: reads the struct it is handed.
    unsafe { ffi::plim_batch_expected_wait_ns(&cpu.to_raw(), slice_ns) }
}

/// Whether CPU `a` is the better place for a batch task than CPU `b`: where it
/// runs sooner, then where the whole core is idle, then where more room is
/// left.
#[must_use]
pub fn better_cpu(a: &Cpu, b: &Cpu, slice_ns: u64) -> bool {
    // SAFETY: reads the structs it is handed.
    unsafe { ffi::plim_batch_better_cpu(&a.to_raw(), &b.to_raw(), slice_ns) != 0 }
}

/// Whether CPU `to`, about to go idle or to run batch work, takes the first
/// waiting task of CPU `from`.
#[must_use]
pub fn should_pull(from: &Cpu, to: &Cpu, slice_ns: u64) -> bool {
    // SAFETY: reads the structs it is handed.
    unsafe { ffi::plim_batch_should_pull(&from.to_raw(), &to.to_raw(), slice_ns) != 0 }
}
