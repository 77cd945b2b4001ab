//! Calls of the core on the order of the tasks that wait in one queue: virtual deadlines, requests,
//! and preemption. Only the kernel makes them outside of these tests.

use crate::ffi::{self, plim_order_sleep as order_block};

pub const REQUEST_MAX_NS: u64 = ffi::PLIM_ORDER_REQUEST_MAX_NS;
/// All of a request.
pub const PART_WHOLE: u32 = 1 << ffi::PLIM_ORDER_PART_SHIFT;
/// The effective weight for which virtual time passes like run time.
pub const WEIGHT_UNIT: u64 = 1 << ffi::PLIM_ORDER_UNIT_SHIFT;

/// Weight of a nice level, 1.25 per level. A value out of range is clamped.
pub fn nice_weight(nice: i32) -> u32 {
    // SAFETY: a pure function of one integer, defined for all of them.
    unsafe { ffi::plim_order_nice_weight(nice) }
}

/// Virtual time that a run of `ran_ns` takes, rounded up.
pub fn delta(ran_ns: u64, effective: u64) -> u64 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_order_delta(ran_ns, effective) }
}

/// Part of its request that a task asks for at once, from what it is without one of its groups: by
/// its weight, or that of the group, among `nr` of the weights `load`.
pub fn part(part: u32, weight: u32, nr: u32, load: u64) -> u32 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_order_part(part, weight, nr, load) }
}

/// Whether virtual time `a` is before `b`; handles a wrap.
pub fn before(a: u64, b: u64) -> bool {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_order_before(a, b) != 0 }
}

/// The clock of a queue from which a task with this start was picked.
pub fn picked(clock: u64, start: u64) -> u64 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_order_picked(clock, start) }
}

/// The clock of a group with several tasks, before a run of one of them is added.
pub fn group_clock(group_clock: u64, clock: u64) -> u64 {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe { ffi::plim_order_group_clock(group_clock, clock) }
}

/// Whether a task that comes preempts the running one, of the same tier.
pub fn preempts(new: &Task, running: &Task) -> bool {
    // SAFETY: a pure function of integers, defined for all of them.
    unsafe {
        ffi::plim_order_preempts(
            new.raw.deadline,
            new.request_ns(),
            running.raw.deadline,
            running.request_ns(),
            i32::from(running.is_served()),
        ) != 0
    }
}

/// Position of one task in virtual time, and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    raw: ffi::plim_order,
}

impl Task {
    /// Creates a task at the clock of a queue, with neither credit nor debt.
    pub fn new(clock: u64) -> Self {
        let mut raw = ffi::plim_order::default();
        // SAFETY: accesses only the task.
        unsafe { ffi::plim_order_init(&mut raw, clock) };
        Self { raw }
    }

    /// The floor of a task that wakes, by the clock of its group.
    pub fn group_floor(&self, group_clock: u64, effective: u64) -> u64 {
        // SAFETY: reads the task.
        unsafe { ffi::plim_order_group_floor(&self.raw, group_clock, effective) }
    }

    /// Joins a queue after a sleep of `asleep_ns`, no earlier than `floor`, with a part of its request.
    pub fn wake(&mut self, clock: u64, floor: u64, asleep_ns: u64, effective: u64, part: u32) {
        // SAFETY: accesses only the task.
        unsafe { ffi::plim_order_wake(&mut self.raw, clock, floor, asleep_ns, effective, part) }
    }

    /// Charges a run.
    pub fn charge(&mut self, ran_ns: u64, effective: u64) {
        // SAFETY: accesses only the task.
        unsafe { ffi::plim_order_charge(&mut self.raw, ran_ns, effective) }
    }

    /// Returns to the queue, able to run on. The next request is a part of it.
    pub fn requeue(&mut self, clock: u64, effective: u64, part: u32) {
        // SAFETY: accesses only the task.
        unsafe { ffi::plim_order_requeue(&mut self.raw, clock, 0, effective, part) }
    }

    /// Blocks: falls asleep, and keeps what it is owed as credit.
    pub fn block(&mut self, clock: u64) {
        // SAFETY: accesses only the task.
        unsafe { order_block(&mut self.raw, clock, 0) }
    }

    /// Moves to a queue with another clock.
    pub fn move_to(&mut self, from_clock: u64, to_clock: u64) {
        // SAFETY: accesses only the task.
        unsafe { ffi::plim_order_move(&mut self.raw, from_clock, to_clock) }
    }

    /// Comes from another queue to this clock after a run: a debt grows by a request.
    pub fn leave(&mut self, clock: u64, effective: u64) {
        // SAFETY: accesses only the task.
        unsafe { ffi::plim_order_leave(&mut self.raw, clock, effective) }
    }

    /// Comes to a queue of another tier: what it is owed is forfeited.
    pub fn forfeit(&mut self, clock: u64) {
        // SAFETY: accesses only the task.
        unsafe { ffi::plim_order_forfeit(&mut self.raw, clock) }
    }

    /// Whether the present request is served.
    pub fn is_served(&self) -> bool {
        // SAFETY: reads the task.
        unsafe { ffi::plim_order_is_served(&self.raw) != 0 }
    }

    /// Run time that is left of the present request.
    pub fn left_ns(&self, effective: u64) -> u64 {
        // SAFETY: reads the task.
        unsafe { ffi::plim_order_left_ns(&self.raw, effective) }
    }

    /// Virtual time of the task's service so far.
    pub fn start(&self) -> u64 {
        self.raw.start
    }

    /// Virtual deadline of the present request.
    pub fn deadline(&self) -> u64 {
        self.raw.deadline
    }

    pub fn request_ns(&self) -> u64 {
        self.raw.request_ns.into()
    }
}
