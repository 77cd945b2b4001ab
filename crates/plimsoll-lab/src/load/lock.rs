//! Locks that two processes share through a file, a futex in its memory or the kernel's own lock
//! of its inode: one process holds the lock for short sections, the other one waits for it. Shows
//! the cost of priority inversion.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use plimsoll_load::clock::{now_ns, precise_timers, use_cpu};
use plimsoll_load::{Latency, nanos};
use serde::Serialize;

use super::wake::wait_until;
use crate::error::{LabError, Result};

/// Magic at the start of a lock file; prevents writes to any other file.
const MAGIC: &[u8; 24] = b"plimsoll load lock file\n";
/// Offset of the futex word. Aligned for an atomic.
const WORD_AT: usize = 32;
/// Offset of the byte that a waiter writes.
const BYTE_AT: u64 = 64;
/// Offset of the data that a holder writes: the second page, because the first is mapped.
const DATA_AT: u64 = 4_096;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, with waiters to wake.
const WANTED: u32 = 2;

/// Figures of a waiter.
#[derive(Debug, Serialize)]
pub struct LockReport {
    /// Number of rounds: times that the lock was acquired.
    pub rounds: usize,
    /// Rounds that found the lock held; none of the kernel's locks, which cannot be queried.
    pub contended: Option<u64>,
    /// Time to acquire the lock. For the kernel's locks: of the write or read.
    pub wait: Latency,
}

/// Opens a lock file; initialises a new or empty one.
pub fn open(path: &Path) -> Result<File> {
    let refused = |e| LabError::file(path)(e);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(path).map_err(refused)?;
    let mut start = Vec::new();
    (&file)
        .take(MAGIC.len() as u64)
        .read_to_end(&mut start)
        .map_err(refused)?;
    if start.is_empty() {
        file.write_all(MAGIC).map_err(refused)?;
        file.set_len(DATA_AT).map_err(refused)?;
    } else if start != MAGIC {
        let why = "allowed: a new or empty file, or one of `load hold` or `load wait`";
        return Err(LabError::Load(format!("{}: {why}", path.display())));
    }
    Ok(file)
}

/// A lock in the memory of a file. Not fair: the first task to try takes it.
#[derive(Debug)]
pub struct MemoryLock {
    start: NonNull<std::ffi::c_void>,
    length: NonZeroUsize,
}

/// Opens a lock file and maps its lock.
pub fn in_memory(path: &Path) -> Result<MemoryLock> {
    let file = open(path)?;
    let length = NonZeroUsize::new(DATA_AT as usize).unwrap_or(NonZeroUsize::MIN);
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0) };
    let start = start.map_err(|e| LabError::load("mapping the lock file")(e.into()))?;
    Ok(MemoryLock { start, length })
}

impl MemoryLock {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, which lives as long as `self`, and aligned, because mappings
        // are page-aligned. Other processes, too, access it only as an atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().byte_add(WORD_AT).cast()) }
    }

    /// Takes the lock; returns whether it had to wait for it.
    fn take(&self) -> bool {
        let word = self.word();
        let free = word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            return false;
        }
        // A task that has slept does not know of other waiters, so it always marks the lock as
        // wanted.
        while word.swap(WANTED, Ordering::Acquire) != FREE {
            self.futex(libc::FUTEX_WAIT, WANTED);
        }
        true
    }

    fn release(&self) {
        if self.word().swap(FREE, Ordering::Release) == WANTED {
            self.futex(libc::FUTEX_WAKE, 1);
        }
    }

    /// Calls `futex(2)` without a timeout. The result does not matter: the caller checks the word
    /// again.
    fn futex(&self, operation: libc::c_int, value: u32) {
        let no_timeout = std::ptr::null::<libc::timespec>();
        // SAFETY: the word is in a shared mapping; a null timeout is none.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word().as_ptr(),
                operation,
                value,
                no_timeout,
            );
        }
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `in_memory`; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.start, self.length.get()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Holds the lock, section after section, until the process is killed. A lock that is held then
/// stays held, and its file cannot be used again.
pub fn hold(lock: &MemoryLock, section: Duration, pause: Duration) -> ! {
    loop {
        lock.take();
        use_cpu(nanos(section));
        lock.release();
        use_cpu(nanos(pause));
    }
}

/// Holds the kernel's lock of the file for one write after the other, until the process is killed.
pub fn write(file: &File, mib: usize, pause: Duration) -> Result<()> {
    let data = vec![0; mib << 20];
    loop {
        file.write_at(&data, DATA_AT)
            .map_err(LabError::load("writing to the lock file"))?;
        use_cpu(nanos(pause));
    }
}

/// A lock, and how to wait for it.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub enum By {
    /// The lock in the memory of the file, through a futex
    #[default]
    Futex,
    /// The kernel's lock of the file, by writing a byte
    Write,
    /// The kernel's locks of the file's pages, by reading a MiB
    Read,
}

/// Acquires a lock, round after round.
pub fn wait(path: &Path, by: By, every: Duration, duration: Duration) -> Result<LockReport> {
    let mut contended = None;
    let waits = match by {
        By::Futex => {
            let lock = in_memory(path)?;
            rounds(every, duration, || {
                *contended.get_or_insert(0) += u64::from(lock.take());
                lock.release();
                Ok(())
            })
        }
        By::Write => {
            let file = open(path)?;
            let write = || file.write_at(&[0], BYTE_AT).map(drop);
            rounds(every, duration, write)
        }
        By::Read => {
            let file = open(path)?;
            let mut data = vec![0; 1 << 20];
            let read = || file.read_at(&mut data, DATA_AT).map(drop);
            rounds(every, duration, read)
        }
    };
    let waits = waits.map_err(LabError::load("using the lock file"))?;
    Ok(LockReport {
        rounds: waits.len(),
        contended,
        wait: Latency::of(waits),
    })
}

/// Runs a round again and again, `every` after the end of the last one; returns their lengths.
fn rounds(
    every: Duration,
    duration: Duration,
    mut round: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<u64>> {
    precise_timers();
    let mut waits = Vec::new();
    let mut due_ns = now_ns();
    let end_ns = due_ns + nanos(duration);
    while due_ns < end_ns {
        wait_until(due_ns);
        let from_ns = now_ns();
        round()?;
        waits.push(now_ns() - from_ns);
        due_ns = now_ns() + nanos(every);
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("plimsoll-lab-{name}-{}", std::process::id()))
    }

    #[test]
    fn lock_in_memory_excludes_and_wakes_its_waiters() {
        let path = path("lock");
        let counter = AtomicU32::new(0);
        let add = || {
            let lock = in_memory(&path).unwrap();
            for _ in 0..20_000 {
                lock.take();
                // Without the lock, two threads would overwrite each other's sum.
                let sum = counter.load(Ordering::Relaxed) + 1;
                counter.store(sum, Ordering::Relaxed);
                lock.release();
            }
        };
        // Made before both use it.
        open(&path).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(add);
            add();
        });
        assert_eq!(counter.load(Ordering::Relaxed), 40_000);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_files_are_refused() {
        let path = path("other");
        std::fs::write(&path, "precious").unwrap();
        let refused = open(&path).unwrap_err().to_string();
        assert!(
            refused.contains("allowed: a new or empty file"),
            "{refused}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
    }
}
