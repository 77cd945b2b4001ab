//! A part of a CPU for the thread that loads the scheduler.
//!
//! To verify the programs takes more than a second of CPU time. On a machine whose CPUs are all
//! busy, an ordinary thread would need many times as long, in which nothing is limited by the
//! scheduler yet. A reservation of the deadline class is kept however busy the machine is and
//! whatever the weights of cgroups are, and leaves the other half of the CPU to everybody else.
//! With a CPU to spare the thread is faster without, because it never gets more than it reserves.

use std::mem;

use procfs::{CurrentSI as _, KernelStats};

use libc::sched_attr;

/// Half of a CPU: in each period, this much at the latest by its end. Others wait for no longer.
const RUNTIME_NS: u64 = 5_000_000;
const PERIOD_NS: u64 = 10_000_000;

/// Reservation of a part of a CPU for the calling thread, made only if more tasks would run than
/// there are CPUs. A kernel that refuses it, such as for want of deadline bandwidth, leaves the
/// thread as it is: loading then takes longer. Real-time tasks of that CPU wait for it, too.
pub(super) struct Reserved {
    /// Scheduling of the thread before; `None`: nothing was changed.
    before: Option<sched_attr>,
}

impl Reserved {
    pub(super) fn where_cpus_are_busy() -> Self {
        if !are_cpus_busy() {
            return Self { before: None };
        }
        Self::begin()
    }

    fn begin() -> Self {
        let reserved = sched_attr {
            size: SIZE,
            sched_policy: libc::SCHED_DEADLINE.cast_unsigned(),
            // A child, such as another thread, is ordinary.
            sched_flags: libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into(),
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: RUNTIME_NS,
            sched_deadline: PERIOD_NS,
            sched_period: PERIOD_NS,
        };
        Self {
            before: own().filter(|_| become_as(&reserved)),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The kernel refuses threads only a reservation, so it does not refuse this.
            become_as(before);
        }
    }
}

/// Whether other tasks than this one would keep more than all CPUs busy; `false` if unknown.
fn are_cpus_busy() -> bool {
    KernelStats::current().is_ok_and(|now| {
        let others = now.procs_running.unwrap_or(0).saturating_sub(1);
        usize::try_from(others).is_ok_and(|others| others > now.cpu_time.len())
    })
}

const SIZE: u32 = mem::size_of::<sched_attr>() as u32;

/// Returns how the calling thread is scheduled.
fn own() -> Option<sched_attr> {
    let mut found = mem::MaybeUninit::<sched_attr>::zeroed();
    // SAFETY: the kernel writes at most SIZE bytes, the size of what it is given.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, found.as_mut_ptr(), SIZE, 0) };
    // SAFETY: numbers only, zero or as the kernel has written them.
    let found = (returned == 0).then(|| unsafe { found.assume_init() })?;
    // The runtime of an ordinary task is the slice it has; written back, it would be fixed.
    Some(sched_attr {
        sched_runtime: 0,
        ..found
    })
}

/// Sets how the calling thread is scheduled. Returns whether the kernel accepts it.
fn become_as(wanted: &sched_attr) -> bool {
    // SAFETY: the kernel reads one `sched_attr`, of the size that it names.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, wanted, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_as_before_when_the_reservation_ends() {
        let parts = |attr: sched_attr| (attr.sched_policy, attr.sched_nice, attr.sched_flags);
        let before = parts(own().unwrap());
        let reserved = Reserved::begin();
        // The kernel grants it to root only, and not on each machine.
        if let Some(saved) = reserved.before {
            assert_eq!(parts(saved), before);
            assert_eq!(own().unwrap().sched_period, PERIOD_NS);
        }
        drop(reserved);
        assert_eq!(parts(own().unwrap()), before);
    }
}
