//! Threads of this process and their CPU affinity.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use clap::builder::RangedU64ValueParser;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::LoadError;
use crate::limits::THREADS_MAX;
use crate::stop::Stop;

/// The CPUs in the calling thread's affinity mask, lowest first; CPU 0 if it can't be read.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
        return vec![0];
    };
    (0..CpuSet::count())
        .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
        .collect()
}

/// Number of CPUs that the calling thread may use (its affinity mask), at least 1.
#[must_use]
pub fn available_cpus() -> usize {
    allowed_cpus().len().max(1)
}

/// A parser of numbers of threads.
pub(crate) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=THREADS_MAX as u64)
}

/// Number of threads of a workload by default.
pub(crate) fn one_per_cpu() -> usize {
    available_cpus().min(THREADS_MAX)
}

/// Starts a thread with a name in a scope. If it panics, `stop` is set.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stop: &'scope Stop,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, LoadError> {
    Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, || stop.set_by_panic(body))
        .map_err(|e| LoadError::io(format!("starting thread {name}"), e))
}

pub(crate) fn pin_to(cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_panics_ends_the_others() {
        let stop = Stop::default();
        let run = || {
            std::thread::scope(|scope| {
                let fails = || panic!("a fault of this test");
                spawn(scope, &stop, "fails", fails).map(drop).unwrap();
                assert!(stop.wait(Duration::from_secs(3_600)));
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }

    #[test]
    fn a_pinned_thread_sees_one_cpu() {
        let cpus = allowed_cpus();
        assert_eq!(cpus.len(), available_cpus());
        let last = cpus[cpus.len() - 1];
        std::thread::spawn(move || {
            pin_to(last).unwrap();
            assert_eq!(allowed_cpus(), [last]);
        })
        .join()
        .unwrap();
    }
}
