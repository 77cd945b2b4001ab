//! Clocks, precise sleep, and burning an exact amount of CPU time.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Rounds of [`work`] between two reads of the CPU clock: some 100 ns, so that
/// a burn ends within about a microsecond of its target without spending most
/// of its time in system calls.
const ROUNDS_PER_LOOK: u32 = 64;

/// Clock that measures the CPU time of a burn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuClock {
    /// The calling thread.
    Thread,
    /// The calling process, all threads.
    Process,
}

impl CpuClock {
    /// CPU time used so far, in ns.
    pub(crate) fn now_ns(self) -> u64 {
        read_ns(match self {
            Self::Thread => ClockId::CLOCK_THREAD_CPUTIME_ID,
            Self::Process => ClockId::CLOCK_PROCESS_CPUTIME_ID,
        })
    }
}

/// Monotonic time in ns.
#[must_use]
pub fn now_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// Reads a clock that every Linux has; fails only for an unknown clock id.
fn read_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| {
        t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs()
    })
}

/// Sleeps until the monotonic clock shows `deadline_ns`. May return early on a signal.
pub fn sleep_until(deadline_ns: u64) {
    let seconds = i64::try_from(deadline_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(deadline_ns % 1_000_000_000).unwrap_or(0);
    let deadline = TimeSpec::new(seconds, nanoseconds);
    // An interrupted sleep is not an error: every caller checks the clock
    // again.
    let _ = clock_nanosleep(
        ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &deadline,
    );
}

/// Asks the kernel not to round this thread's timers (the default slack is 50 µs).
pub fn precise_timers() {
    // If refused, sleeps end a little later, which is tolerable.
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Runs `rounds` steps of a dependent multiply-add chain: the same instructions
/// in every run, without memory accesses, and with nothing that the compiler or
/// the CPU can shorten.
pub(crate) fn work(mut state: u64, rounds: u32) -> u64 {
    for _ in 0..rounds {
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        );
    }
    state
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burnt {
    /// CPU time used, by the same clock as the demand.
    pub(crate) cpu_ns: u64,
    /// `false`: stopped before the demand was reached.
    pub(crate) complete: bool,
}

/// Spins until the calling thread has used `demand_ns` of CPU time; returns the CPU time used.
pub fn use_cpu(demand_ns: u64) -> u64 {
    burn(CpuClock::Thread, demand_ns, &AtomicBool::new(false)).cpu_ns
}

/// Spins until `clock` has advanced by `demand_ns`, or `stop` is set.
pub(crate) fn burn(clock: CpuClock, demand_ns: u64, stop: &AtomicBool) -> Burnt {
    burn_from(clock, clock.now_ns(), demand_ns, stop)
}

/// Spins as [`burn`] does, counted from an earlier reading of the clock.
///
/// Uses only arithmetic, an atomic and `clock_gettime`, so it may run in a
/// forked child.
pub(crate) fn burn_from(clock: CpuClock, from_ns: u64, demand_ns: u64, stop: &AtomicBool) -> Burnt {
    let mut state = from_ns;
    loop {
        let cpu_ns = clock.now_ns().saturating_sub(from_ns);
        let complete = cpu_ns >= demand_ns;
        if complete || stop.load(Ordering::Relaxed) {
            return Burnt { cpu_ns, complete };
        }
        state = work(state, ROUNDS_PER_LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burn_stops_on_request() {
        let burnt = burn(CpuClock::Thread, u64::MAX, &AtomicBool::new(true));
        assert!(!burnt.complete);
    }
}
