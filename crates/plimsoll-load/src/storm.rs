//! Storm of many short-lived processes, as in a build or a clean-up.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{ForkResult, Pid, fork};
use serde::Serialize;

use crate::clock::{CpuClock, burn_from};
use crate::error::LoadError;
use crate::limits::{
    STORM_CPU_EACH_MAX, STORM_CPU_EACH_MIN, STORM_PARALLEL_MAX, STORM_PROCESSES_MAX,
};
use crate::report::Ending;
use crate::stop::Stop;
use crate::units::{duration, nanos, ratio, seconds, show, time_between};

/// Interval at which a storm checks whether it was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(group = clap::ArgGroup::new("cpu").required(true))]
pub struct StormArgs {
    /// Number of processes, 1 to 1000000
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=STORM_PROCESSES_MAX),
        allow_hyphen_values = true
    )]
    processes: u32,
    /// CPU time of all processes together
    #[arg(long, value_name = "TIME", group = "cpu", value_parser = duration, allow_hyphen_values = true)]
    cpu_total: Option<Duration>,
    /// CPU time of each process, by its own clock, 1us to 60s
    #[arg(
        long,
        value_name = "TIME",
        group = "cpu",
        value_parser = time_between(STORM_CPU_EACH_MIN, STORM_CPU_EACH_MAX),
        allow_hyphen_values = true
    )]
    cpu_each: Option<Duration>,
    /// Processes alive at once, 1 to 256
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=STORM_PARALLEL_MAX),
        allow_hyphen_values = true
    )]
    parallel: u16,
}

impl StormArgs {
    /// CPU time of each process.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for a share of the total out of range.
    fn cpu_each(&self) -> Result<Duration, LoadError> {
        let each = match (self.cpu_each, self.cpu_total) {
            (Some(each), _) => each,
            (None, total) => total.unwrap_or_default() / self.processes,
        };
        if (STORM_CPU_EACH_MIN..=STORM_CPU_EACH_MAX).contains(&each) {
            return Ok(each);
        }
        Err(LoadError::Invalid {
            field: "cpu-total / processes",
            value: show(each),
            allowed: format!(
                "a time from {} to {}",
                show(STORM_CPU_EACH_MIN),
                show(STORM_CPU_EACH_MAX)
            ),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StormReport {
    /// Processes that ran to their end.
    pub processes: u32,
    /// Processes that were killed or stopped before their end.
    pub failed: u32,
    /// Processes alive at once.
    pub parallel: u16,
    /// Time from the first fork to the last exit.
    pub elapsed_seconds: f64,
    /// Processes ÷ elapsed time.
    pub processes_per_second: f64,
    /// CPU time that the processes were asked to burn.
    pub cpu_asked_seconds: f64,
    /// CPU time used by the kernel's accounting, including start and exit.
    pub cpu_seconds: f64,
    /// CPU time that the parent used to fork and reap them; not part of `cpu_seconds`.
    pub cpu_fork_seconds: f64,
    /// All CPU time of the storm ÷ elapsed time.
    pub cpus_used: f64,
    pub ending: Ending,
}

#[derive(Debug, Default)]
struct Tally {
    /// Set when no more processes are to be started.
    is_over: AtomicBool,
    started: AtomicU32,
    done: AtomicU32,
    failed: AtomicU32,
    cpu_ns: AtomicU64,
    fork_ns: AtomicU64,
}

/// Runs a storm to its end, or until `stop` is set.
///
/// Each process is forked without exec by one of `parallel` threads, burns its
/// time and exits; after it is reaped, the thread forks the next.
///
/// # Errors
/// [`LoadError::Invalid`] for a setting out of range, [`LoadError::Io`] if the system refuses a
/// process.
pub fn run(config: &StormArgs, stop: &Stop) -> Result<StormReport, LoadError> {
    let cpu_each = config.cpu_each()?;
    let tally = Tally::default();
    let started = Instant::now();
    run_lanes(config, nanos(cpu_each), stop, &tally)?;
    let elapsed_seconds = started.elapsed().as_secs_f64();

    let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
    let cpu_seconds = seconds(tally.cpu_ns.load(Ordering::Relaxed));
    let cpu_fork_seconds = seconds(tally.fork_ns.load(Ordering::Relaxed));
    let (done, failed) = (load(&tally.done), load(&tally.failed));
    Ok(StormReport {
        processes: done,
        failed,
        parallel: config.parallel,
        elapsed_seconds,
        processes_per_second: ratio(f64::from(done + failed), elapsed_seconds),
        cpu_asked_seconds: cpu_each.as_secs_f64() * f64::from(done + failed),
        cpu_seconds,
        cpu_fork_seconds,
        cpus_used: ratio(cpu_seconds + cpu_fork_seconds, elapsed_seconds),
        ending: if done + failed < config.processes || stop.is_set() {
            Ending::Stopped
        } else {
            Ending::Complete
        },
    })
}

/// Runs the forking threads until they have started all processes. When `stop`
/// is set, or one fails, they start no more, and the living processes are
/// killed.
fn run_lanes(
    config: &StormArgs,
    demand_ns: u64,
    stop: &Stop,
    tally: &Tally,
) -> Result<(), LoadError> {
    let lanes: Vec<Lane> = std::iter::repeat_with(Lane::default)
        .take(config.parallel.into())
        .collect();
    let waiting = std::thread::current();
    std::thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .iter()
            .map(|lane| {
                let waiting = waiting.clone();
                scope.spawn(move || {
                    let run = || lane.run(config.processes, demand_ns, tally);
                    let outcome = stop.set_by_panic(run);
                    waiting.unpark();
                    outcome
                })
            })
            .collect();
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::park_timeout(LOOK_EVERY);
            if stop.is_set() {
                tally.is_over.store(true, Ordering::Relaxed);
            }
            if tally.is_over.load(Ordering::Relaxed) {
                lanes.iter().for_each(Lane::kill);
            }
        }
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or(Err(LoadError::ThreadDied { role: "forking" }))
        })
    })
}

/// A thread that forks processes one after the other.
#[derive(Debug, Default)]
struct Lane {
    /// The process that is not reaped yet, so that its id is no other's.
    living: Mutex<Option<Pid>>,
}

impl Lane {
    fn living(&self) -> MutexGuard<'_, Option<Pid>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        if let Some(child) = *self.living() {
            // It may have ended in this moment.
            let _ = kill(child, Signal::SIGKILL);
        }
    }

    /// Forks while there are any processes left to start.
    fn run(&self, processes: u32, demand_ns: u64, tally: &Tally) -> Result<(), LoadError> {
        let mut outcome = Ok(());
        while outcome.is_ok()
            && !tally.is_over.load(Ordering::Relaxed)
            && tally.started.fetch_add(1, Ordering::Relaxed) < processes
        {
            outcome = self.one_process(demand_ns, tally);
        }
        if outcome.is_err() {
            tally.is_over.store(true, Ordering::Relaxed);
        }
        let own_ns = CpuClock::Thread.now_ns();
        tally.fork_ns.fetch_add(own_ns, Ordering::Relaxed);
        outcome
    }

    fn one_process(&self, demand_ns: u64, tally: &Tally) -> Result<(), LoadError> {
        let child = fork_burner(demand_ns).map_err(|e| LoadError::io("starting a process", e))?;
        *self.living() = Some(child);
        wait_until_over(child)?;
        let mut living = self.living();
        *living = None;
        let ended = reap(child)?;
        drop(living);
        let count = if ended.success {
            &tally.done
        } else {
            &tally.failed
        };
        count.fetch_add(1, Ordering::Relaxed);
        tally.cpu_ns.fetch_add(ended.cpu_ns, Ordering::Relaxed);
        Ok(())
    }
}

/// Forks a child that burns its CPU time and exits with status 0.
fn fork_burner(demand_ns: u64) -> nix::Result<Pid> {
    // SAFETY: the child uses only arithmetic, atomics, clock_gettime and `_exit`, which are
    // async-signal-safe, although the parent has other threads.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // The process clock starts at the fork.
            burn_from(CpuClock::Process, 0, demand_ns, &AtomicBool::new(false));
            // SAFETY: ends the child at once, without running exit handlers of
            // the parent.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Waits until a child has ended, and does not reap it.
fn wait_until_over(child: Pid) -> Result<(), LoadError> {
    loop {
        match waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => {}
            Err(error) => {
                return Err(LoadError::io(format!("waiting for process {child}"), error));
            }
            Ok(_) => return Ok(()),
        }
    }
}

/// Exit of a child.
#[derive(Debug, Clone, Copy)]
struct Ended {
    /// Exit status 0.
    success: bool,
    /// User and system time of the child, fork and exit included, in ns.
    cpu_ns: u64,
}

/// Reaps a child that has ended.
fn reap(child: Pid) -> Result<Ended, LoadError> {
    let mut status = 0;
    // SAFETY: `rusage` is a plain C struct for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the types that wait4 writes.
    let reaped = unsafe { libc::wait4(child.as_raw(), &raw mut status, 0, &raw mut usage) };
    if reaped < 0 {
        let error = std::io::Error::last_os_error();
        return Err(LoadError::io(format!("reaping process {child}"), error));
    }
    let ns = |t: libc::timeval| {
        t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_usec.unsigned_abs() * 1_000
    };
    Ok(Ended {
        success: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> StormArgs {
        StormArgs {
            processes: 100,
            cpu_total: None,
            cpu_each: Some(Duration::from_millis(2)),
            parallel: 4,
        }
    }

    #[test]
    fn every_process_burns_its_share() {
        let report = run(&config(), &Stop::default()).unwrap();
        assert_eq!((report.processes, report.failed), (100, 0));
        assert_eq!(report.ending, Ending::Complete);
        assert!((report.cpu_asked_seconds - 0.2).abs() < 1e-9);
        // rusage counts whole microseconds, twice per process.
        assert!(report.cpu_seconds >= 0.2 - 100.0 * 2e-6, "{report:?}");
        assert!(report.cpu_fork_seconds > 0.0);
    }

    #[test]
    fn stopped_storm_ends_early_without_leftover_processes() {
        let stop = Stop::default();
        stop.set(15);
        let endless = StormArgs {
            processes: 1_000_000,
            cpu_each: Some(STORM_CPU_EACH_MAX),
            ..config()
        };
        let report = run(&endless, &stop).unwrap();
        assert_eq!(report.ending, Ending::Stopped);
        assert_eq!(report.processes, 0);
        assert!(report.failed <= 4);
    }
}
