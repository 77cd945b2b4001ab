//! Locks that two processes share through a file: a futex in shared memory, and
//! the kernel's own lock of the file's inode.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::LoadError;

/// Magic at the start of a lock file; prevents writes to any other file.
const MAGIC: &[u8; 24] = b"plimsoll load lock file\n";
/// Offset of the futex word. Aligned for an atomic.
const WORD_AT: usize = 32;
/// Offset of the byte that [`FileLock::touch`] writes.
const BYTE_AT: u64 = 64;
/// Offset of the data that [`FileLock::fill`] writes: the second page, because
/// the first is mapped.
const DATA_AT: u64 = 4_096;
/// Interval at which a waiter checks whether it was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, with waiters to wake.
const WANTED: u32 = 2;

/// Opens a lock file; initialises a new or empty file.
pub(crate) fn open(path: &Path) -> Result<File, LoadError> {
    let failed = |e| LoadError::io(format!("opening {}", path.display()), e);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed)?;
    let mut start = Vec::new();
    (&file)
        .take(MAGIC.len() as u64)
        .read_to_end(&mut start)
        .map_err(failed)?;
    if start.is_empty() {
        file.write_all(MAGIC).map_err(failed)?;
        file.set_len(DATA_AT).map_err(failed)?;
    } else if start != MAGIC {
        return Err(LoadError::invalid(
            "FILE",
            path.display(),
            "a new or empty file, or one that `load hold` or `load wait` has created",
        ));
    }
    Ok(file)
}

/// A lock in the memory of a file. Not fair: the first task to try takes it.
#[derive(Debug)]
pub(crate) struct MemoryLock {
    start: NonNull<std::ffi::c_void>,
    length: NonZeroUsize,
}

impl MemoryLock {
    pub(crate) fn of(file: &File) -> Result<Self, LoadError> {
        let length = NonZeroUsize::new(DATA_AT as usize).unwrap_or(NonZeroUsize::MIN);
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, file, 0) };
        let start = start.map_err(|e| LoadError::io("mapping the lock file", e))?;
        Ok(Self { start, length })
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, which lives as long as `self`, and
        // aligned, because mappings are page-aligned. Other processes, too,
        // access it only as an atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().byte_add(WORD_AT).cast()) }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_take(&self) -> bool {
        let taken = self
            .word()
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Waits until it has the lock or `give_up` returns true, which is called
    /// 20 times a second. Returns whether it has the lock.
    pub(crate) fn take(&self, give_up: impl Fn() -> bool) -> bool {
        // A task that has slept does not know of other waiters, so it always
        // marks the lock as wanted.
        while self.word().swap(WANTED, Ordering::Acquire) != FREE {
            if give_up() {
                return false;
            }
            self.sleep_while_wanted();
        }
        true
    }

    pub(crate) fn release(&self) {
        if self.word().swap(FREE, Ordering::Release) == WANTED {
            self.futex(libc::FUTEX_WAKE, 1, std::ptr::null());
        }
    }

    fn sleep_while_wanted(&self) {
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()),
        };
        self.futex(libc::FUTEX_WAIT, WANTED, &raw const timeout);
    }

    /// The result does not matter: the caller checks the word again.
    fn futex(&self, operation: libc::c_int, value: u32, timeout: *const libc::timespec) {
        // SAFETY: the word is in a shared mapping; the timeout is null or points to a live value.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word().as_ptr(),
                operation,
                value,
                timeout,
            );
        }
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `of`; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.start, self.length.get()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The kernel's lock of a file's inode, which a write holds until all data is
/// written.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
    data: Vec<u8>,
}

impl FileLock {
    /// `bytes`: size of the writes of [`FileLock::fill`].
    pub(crate) fn of(file: File, bytes: usize) -> Self {
        let data = vec![0; bytes];
        Self { file, data }
    }

    /// Holds the lock for the time of a write of all bytes.
    pub(crate) fn fill(&self) -> Result<(), LoadError> {
        let written = self.file.write_at(&self.data, DATA_AT);
        // Even a write that a signal cut short has held the lock.
        written.map_or_else(Self::failed, |_| Ok(()))
    }

    /// Waits for the lock and holds it for the time of writing a byte.
    pub(crate) fn touch(&self) -> Result<(), LoadError> {
        let written = self.file.write_at(&[0], BYTE_AT);
        written.map_or_else(Self::failed, |_| Ok(()))
    }

    fn failed(error: std::io::Error) -> Result<(), LoadError> {
        match error.kind() {
            std::io::ErrorKind::Interrupted => Ok(()),
            _ => Err(LoadError::io("writing to the lock file", error)),
        }
    }
}
