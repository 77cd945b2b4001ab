//! Lock contention: one task holds a lock for short sections and another waits
//! for it. Shows the cost of priority inversion when a batch task holds a lock
//! that a latency-critical task needs.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{CpuClock, burn, now_ns, precise_timers, sleep_until};
use crate::error::LoadError;
use crate::limits::{DURATION_MAX, DURATION_MIN, EVERY_RANGE, SECTION_RANGE, WRITE_MIB_MAX};
use crate::lock::{self, FileLock, MemoryLock};
use crate::report::{Ending, Latency, row};
use crate::stop::Stop;
use crate::units::{check_count, check_duration, nanos, seconds};
use crate::waits::Waits;

/// Kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// Lock in memory that is shared through the file; waiters sleep on a
    /// futex.
    Memory,
    /// The kernel's lock of the file's inode, held during a write.
    File,
}

/// Settings of a task that repeatedly holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldConfig {
    /// The file that both tasks name.
    pub file: PathBuf,
    /// `Some`: each section is a write of this many MiB, 1 to
    /// [`WRITE_MIB_MAX`], to the file, which holds the kernel's lock. `None`:
    /// each section burns `section` under a lock in memory.
    pub write_mib: Option<u64>,
    /// CPU time of a section, see [`SECTION_RANGE`].
    pub section: Duration,
    /// CPU time between two sections, see [`SECTION_RANGE`].
    pub pause: Duration,
    /// Duration of the run, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
}

/// Figures of the holder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldReport {
    /// Kind of lock.
    pub lock: LockKind,
    /// Time since the start.
    pub elapsed_seconds: f64,
    /// CPU time used.
    pub cpu_seconds: f64,
    /// Number of sections.
    pub sections: u64,
    /// Duration of the sections, waits for the CPU included.
    pub held: Latency,
    /// How the run ended.
    pub ending: Ending,
}

impl fmt::Display for HoldReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (elapsed, cpu) = (self.elapsed_seconds, self.cpu_seconds);
        row(f, "elapsed", format_args!("{elapsed:.3} s, CPU {cpu:.3} s"))?;
        row(f, "sections", format_args!("{}", self.sections))?;
        writeln!(f, "lock held")?;
        self.held.fmt_table(f)
    }
}

/// Settings of a task that repeatedly waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitConfig {
    /// The file that both tasks name.
    pub file: PathBuf,
    /// Kind of lock.
    pub lock: LockKind,
    /// Time between the end of a round and the next, see [`EVERY_RANGE`].
    pub every: Duration,
    /// Duration of the run, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
}

/// Figures of the waiter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitReport {
    /// Kind of lock.
    pub lock: LockKind,
    /// Time since the start.
    pub elapsed_seconds: f64,
    /// Number of rounds: attempts to acquire the lock.
    pub rounds: u64,
    /// Rounds that found the lock held; `null` for the kernel's lock, which
    /// cannot be queried.
    pub contended: Option<u64>,
    /// Rounds that had not acquired the lock when the run was stopped. Their
    /// wait until then is in `wait`.
    pub unfinished: u64,
    /// Time to acquire the lock. For the kernel's lock: until a byte was
    /// written.
    pub wait: Latency,
    /// Delay of the start of rounds, which is independent of the lock: the time
    /// that any such task waits for a CPU.
    pub late: Latency,
    /// How the run ended.
    pub ending: Ending,
}

impl fmt::Display for WaitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "elapsed", format_args!("{:.3} s", self.elapsed_seconds))?;
        let contended = self.contended.map_or_else(String::new, |contended| {
            format!(", {contended} of them found the lock held")
        });
        row(f, "rounds", format_args!("{}{contended}", self.rounds))?;
        writeln!(f, "wait for the lock")?;
        self.wait.fmt_table(f)?;
        writeln!(f, "wait for a CPU at the start of a round")?;
        self.late.fmt_table(f)
    }
}

/// Lock of either kind, as the holder uses it.
enum Lock {
    Memory(MemoryLock),
    File(FileLock),
}

/// Holds the lock in the calling thread, section after section, until the
/// duration is over or `stop` is set. Calls `progress` after each section with
/// the time since the start.
///
/// If the holder is killed, a lock in memory stays held for ever; the file
/// cannot be used again.
///
/// # Errors
/// [`LoadError::Invalid`] for a setting out of range or a file of another kind,
/// [`LoadError::Io`] if the file can't be used.
pub fn hold(
    config: &HoldConfig,
    stop: &Stop,
    mut progress: impl FnMut(Duration),
) -> Result<HoldReport, LoadError> {
    check_duration("section", config.section, SECTION_RANGE)?;
    check_duration("pause", config.pause, SECTION_RANGE)?;
    check_duration("duration", config.duration, (DURATION_MIN, DURATION_MAX))?;
    let lock = held_lock(config)?;
    let mut held = Waits::new()?;
    let (start_ns, cpu_start_ns) = (now_ns(), CpuClock::Thread.now_ns());
    let end_ns = start_ns.saturating_add(nanos(config.duration));
    while now_ns() < end_ns && !stop.is_set() {
        if let Some(section_ns) = section(&lock, nanos(config.section), stop)? {
            held.add(section_ns);
        }
        burn_for(nanos(config.pause));
        progress(Duration::from_nanos(now_ns() - start_ns));
    }
    Ok(HoldReport {
        lock: match lock {
            Lock::Memory(_) => LockKind::Memory,
            Lock::File(_) => LockKind::File,
        },
        elapsed_seconds: seconds(now_ns() - start_ns),
        cpu_seconds: seconds(CpuClock::Thread.now_ns() - cpu_start_ns),
        sections: held.count(),
        held: held.latency(),
        ending: Ending::by(stop),
    })
}

fn held_lock(config: &HoldConfig) -> Result<Lock, LoadError> {
    let Some(mib) = config.write_mib else {
        return Ok(Lock::Memory(MemoryLock::of(&lock::open(&config.file)?)?));
    };
    check_count("write-mib", mib, WRITE_MIB_MAX)?;
    let file = FileLock::of(lock::open(&config.file)?, (mib << 20) as usize);
    // The first write extends the file, which takes longer than later writes.
    file.fill()?;
    Ok(Lock::File(file))
}

/// Returns how long it held the lock; `None` if it was stopped before it
/// acquired it.
fn section(lock: &Lock, section_ns: u64, stop: &Stop) -> Result<Option<u64>, LoadError> {
    let from_ns = match lock {
        Lock::File(file) => {
            let from_ns = now_ns();
            file.fill()?;
            from_ns
        }
        Lock::Memory(memory) => {
            if !memory.try_take() && !memory.take(|| stop.is_set()) {
                return Ok(None);
            }
            let from_ns = now_ns();
            burn_for(section_ns);
            memory.release();
            from_ns
        }
    };
    Ok(Some(now_ns() - from_ns))
}

fn burn_for(cpu_ns: u64) {
    burn(CpuClock::Thread, cpu_ns, &AtomicBool::new(false));
}

/// Acquires the lock in the calling thread, round after round, until the
/// duration is over or `stop` is set. Calls `progress` after each round with
/// the time since the start.
///
/// # Errors
/// [`LoadError::Invalid`] for a setting out of range or a file of another kind,
/// [`LoadError::Io`] if the file can't be used.
pub fn wait(
    config: &WaitConfig,
    stop: &Stop,
    mut progress: impl FnMut(Duration),
) -> Result<WaitReport, LoadError> {
    check_duration("every", config.every, EVERY_RANGE)?;
    check_duration("duration", config.duration, (DURATION_MIN, DURATION_MAX))?;
    let lock = match config.lock {
        LockKind::Memory => Lock::Memory(MemoryLock::of(&lock::open(&config.file)?)?),
        LockKind::File => Lock::File(FileLock::of(lock::open(&config.file)?, 0)),
    };
    let (mut waits, mut late) = (Waits::new()?, Waits::new()?);
    let (mut contended, mut unfinished) = (0, 0);
    precise_timers();
    let start_ns = now_ns();
    let end_ns = start_ns.saturating_add(nanos(config.duration));
    let mut due_ns = start_ns;
    while due_ns < end_ns && !stop.is_set() {
        sleep_until(due_ns);
        let started_ns = now_ns();
        if started_ns < due_ns {
            continue;
        }
        late.add(started_ns - due_ns);
        let round = run_round(&lock, stop)?;
        waits.add(now_ns() - started_ns);
        contended += u64::from(round.contended);
        unfinished += u64::from(!round.done);
        due_ns = now_ns().saturating_add(nanos(config.every));
        progress(Duration::from_nanos(started_ns - start_ns));
    }
    Ok(WaitReport {
        lock: config.lock,
        elapsed_seconds: seconds(now_ns() - start_ns),
        rounds: waits.count(),
        contended: (config.lock == LockKind::Memory).then_some(contended),
        unfinished,
        wait: waits.latency(),
        late: late.latency(),
        ending: Ending::by(stop),
    })
}

/// Result of one round.
struct Round {
    contended: bool,
    done: bool,
}

fn run_round(lock: &Lock, stop: &Stop) -> Result<Round, LoadError> {
    let memory = match lock {
        Lock::Memory(memory) => memory,
        Lock::File(file) => {
            file.touch()?;
            return Ok(Round {
                contended: false,
                done: true,
            });
        }
    };
    let contended = !memory.try_take();
    let done = !contended || memory.take(|| stop.is_set());
    if done {
        memory.release();
    }
    Ok(Round { contended, done })
}
