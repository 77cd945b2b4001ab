//! A part of a CPU for the thread that loads the scheduler.
//!
//! To verify the programs takes more than a second of CPU time. On a machine whose CPUs are all
//! busy, an ordinary thread would need many times as long, in which nothing is limited by the
//! scheduler yet. A reservation of the deadline class is kept however busy the machine is and
//! whatever the weights of cgroups are, and leaves the other half of the CPU to everybody else.
//! With a CPU to spare the thread is faster without, because it never gets more than it reserves.

use std::mem;

use libc::sched_attr;
use procfs::{CurrentSI as _, KernelStats};

/// Half of a CPU: in each period, this much at the latest by its end. Others wait for no longer.
const RUNTIME_NS: u64 = 5_000_000;
const PERIOD_NS: u64 = 10_000_000;

/// Reserves a part of a CPU for the rest of the calling thread's life, if more tasks would run than
/// there are CPUs. A kernel that refuses it, such as for want of deadline bandwidth, leaves the
/// thread as it is: loading then takes longer. Real-time tasks of that CPU wait for it, too.
pub(super) fn where_cpus_are_busy() {
    if are_cpus_busy() {
        reserve();
    }
}

fn reserve() {
    let reserved = sched_attr {
        size: mem::size_of::<sched_attr>() as u32,
        sched_policy: libc::SCHED_DEADLINE.cast_unsigned(),
        // A child, such as another thread, is ordinary.
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into(),
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: RUNTIME_NS,
        sched_deadline: PERIOD_NS,
        sched_period: PERIOD_NS,
    };
    // SAFETY: the kernel reads one `sched_attr`, of the size that it names; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const reserved, 0) };
}

/// Whether other tasks than this one would keep more than all CPUs busy; `false` if unknown.
fn are_cpus_busy() -> bool {
    KernelStats::current().is_ok_and(|now| {
        let others = now.procs_running.unwrap_or(0).saturating_sub(1);
        usize::try_from(others).is_ok_and(|others| others > now.cpu_time.len())
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use plimsoll_engine::tasks::policy_number;

    use super::*;

    #[test]
    fn only_the_thread_that_loads_has_the_reservation() {
        let before = policy_number(0);
        let within = thread::spawn(|| {
            reserve();
            let child = thread::spawn(|| policy_number(0)).join().unwrap();
            let own = policy_number(0).map(|policy| policy & !libc::SCHED_RESET_ON_FORK);
            (own, child)
        });
        let (own, child) = within.join().unwrap();
        // The kernel grants it to root only, and not on each machine.
        assert!(own == Some(libc::SCHED_DEADLINE) || own == before);
        assert_ne!(child, Some(libc::SCHED_DEADLINE));
        assert_eq!(policy_number(0), before);
    }
}
