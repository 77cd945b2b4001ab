//! Virtual time, and the work that CPUs do in it.
//!
//! There are two clocks. Wall time governs slices and periods. The work clock
//! advances by the work of a whole core without busy siblings, and runs slower
//! the more CPUs are busy. The end of a task's work is a reading of the work
//! clock, so that no timer has to be moved when the speed of all CPUs changes
//! at once.

use plimsoll_policy::PPM;

use crate::scenario::Machine;

use super::task::{WORK_PER_NS, WORK_SHIFT};

#[derive(Debug)]
pub(super) struct Clock {
    pub(super) now_ns: u64,
    /// The clock of work.
    pub(super) work: u64,
    /// Work per nanosecond, by the number of busy CPUs.
    speeds: Vec<u64>,
    speed: u64,
    /// Number of CPUs that run normal work, and batch work.
    nr_normal: u64,
    nr_batch: u64,
    /// CPU time of each class up to now.
    pub(super) normal_ns: u64,
    pub(super) batch_ns: u64,
    /// Number of CPUs that headroom demands idle and that are busy, and the
    /// integral of that number over time.
    pub(super) missing_cpus: u32,
    pub(super) missing_ns: u64,
}

impl Clock {
    pub(super) fn new(machine: &Machine) -> Self {
        Self {
            now_ns: 0,
            work: 0,
            speeds: (0..=machine.cpus)
                .map(|busy| speed(machine, busy))
                .collect(),
            speed: WORK_PER_NS,
            nr_normal: 0,
            nr_batch: 0,
            normal_ns: 0,
            batch_ns: 0,
            missing_cpus: 0,
            missing_ns: 0,
        }
    }

    /// Advances to `now_ns`, which must not be in the past.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns - self.now_ns;
        self.now_ns = now_ns;
        self.work += elapsed_ns * self.speed;
        self.normal_ns += elapsed_ns * self.nr_normal;
        self.batch_ns += elapsed_ns * self.nr_batch;
        self.missing_ns += elapsed_ns * u64::from(self.missing_cpus);
    }

    /// Wall time at which the work clock will show `work`, if no speed changes.
    pub(super) fn when(&self, work: u64) -> u64 {
        let left = work.saturating_sub(self.work);
        let left_ns = if self.speed == WORK_PER_NS {
            left.div_ceil(WORK_PER_NS)
        } else {
            left.div_ceil(self.speed)
        };
        self.now_ns.saturating_add(left_ns)
    }

    /// Counts a CPU that begins or ends running normal or batch work.
    pub(super) fn count(&mut self, batch: bool, begins: bool) {
        let count = if batch {
            &mut self.nr_batch
        } else {
            &mut self.nr_normal
        };
        if begins {
            *count += 1;
        } else {
            *count -= 1;
        }
        self.speed = self.speeds[(self.nr_normal + self.nr_batch) as usize];
    }

    pub(super) fn nr_batch(&self) -> u64 {
        self.nr_batch
    }
}

/// Work that a CPU does in a nanosecond while `busy` CPUs of the machine are
/// busy. Contention grows in proportion to the other busy CPUs.
fn speed(machine: &Machine, busy: u32) -> u64 {
    let others = u64::from(machine.cpus - 1);
    if others == 0 || busy < 2 {
        return WORK_PER_NS;
    }
    let contended_ppm = u64::from(machine.contention_ppm) * u64::from(busy - 1) / others;
    WORK_PER_NS * PPM / (PPM + contended_ppm)
}

/// Work done at `rate_ppm` (at most 1,000,000) while the work clock advances by
/// `elapsed`.
pub(super) fn scaled(elapsed: u64, rate_ppm: u64) -> u64 {
    if rate_ppm == PPM {
        return elapsed;
    }
    // Quotient and remainder are scaled apart, so that no product overflows.
    elapsed / PPM * rate_ppm + elapsed % PPM * rate_ppm / PPM
}

/// Advance of the work clock in which `work` is done at `rate_ppm`.
pub(super) fn stretched(work: u64, rate_ppm: u64) -> u64 {
    if rate_ppm == PPM {
        return work;
    }
    let rest = (work % rate_ppm * PPM).div_ceil(rate_ppm);
    (work / rate_ppm).saturating_mul(PPM).saturating_add(rest)
}

/// Converts nanoseconds of a whole CPU to work. Times longer than any run
/// become endless work.
pub(super) fn work_of_ns(ns: u64) -> u64 {
    if ns > super::LONGEST_NS {
        return super::task::ENDLESS;
    }
    ns << WORK_SHIFT
}
