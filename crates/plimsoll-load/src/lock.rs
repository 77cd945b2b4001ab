//! Locks that two processes share through a file: one in its memory, on the kernel's futex, and
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

/// What a file starts with, so that no other file is ever written to.
const MAGIC: &[u8; 24] = b"plimsoll load lock file\n";
/// Where the lock is. Aligned for an atomic.
const WORD_AT: usize = 32;
/// Where [`FileLock::touch`] writes its byte.
const BYTE_AT: u64 = 64;
/// Behind this is what [`FileLock::fill`] writes. A page: the file's first is mapped.
const DATA_AT: u64 = 4_096;
/// How often a waiter looks whether it was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody has to be woken.
const WANTED: u32 = 2;

/// Opens a lock file, and makes one of a new or an empty file.
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
            "a new or empty file, or one that `load hold` or `load wait` has made",
        ));
    }
    Ok(file)
}

/// A lock in the memory of a file. It is not handed over: whoever comes first takes it.
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
        // SAFETY: within the mapping, which lives as long as `self`, and aligned, as mappings
        // are to pages. Other processes, too, use it as an atomic only.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().byte_add(WORD_AT).cast()) }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_take(&self) -> bool {
        let taken = self
            .word()
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Waits until it has the lock, or until `give_up` says true, which it is asked 20 times a
    /// second. Returns whether it has it.
    pub(crate) fn take(&self, give_up: impl Fn() -> bool) -> bool {
        // Who has slept cannot know whether others still do, and so always wants to wake one.
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

    /// Whatever comes of it, the caller looks at the word again.
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

/// The kernel's lock of a file: whoever writes to the file holds it until all is written.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
    data: Vec<u8>,
}

impl FileLock {
    /// `bytes`: what [`FileLock::fill`] writes.
    pub(crate) fn of(file: File, bytes: usize) -> Self {
        let data = vec![0; bytes];
        Self { file, data }
    }

    /// Holds the lock for as long as it takes to write all bytes.
    pub(crate) fn fill(&self) -> Result<(), LoadError> {
        let written = self.file.write_at(&self.data, DATA_AT);
        // A signal may have cut it short: the lock was held all the same.
        written.map_or_else(Self::failed, |_| Ok(()))
    }

    /// Waits for the lock, holds it for a byte's time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_the_lock_and_who_waits_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder.path().join("lock")).unwrap();
        let (mine, yours) = (
            MemoryLock::of(&file).unwrap(),
            MemoryLock::of(&file).unwrap(),
        );
        assert!(mine.try_take());
        assert!(!yours.try_take() && !yours.take(|| true));
        let waits = std::thread::scope(|scope| {
            // A mapping may be used by one thread only: this one makes its own.
            let waiter = scope.spawn(|| {
                let theirs = MemoryLock::of(&file).unwrap();
                let has = theirs.take(|| false);
                theirs.release();
                has
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            mine.release();
            waiter.join().unwrap()
        });
        assert!(waits && yours.try_take());
    }

    #[test]
    fn a_file_with_something_else_in_it_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letter");
        std::fs::write(&path, "Dear all,").unwrap();
        let text = open(&path).unwrap_err().to_string();
        assert!(text.contains("letter") && text.contains("a new or empty file"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "Dear all,");
    }

    #[test]
    fn both_locks_work_on_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        drop(open(&path).unwrap());
        let memory = MemoryLock::of(&open(&path).unwrap()).unwrap();
        let file = FileLock::of(open(&path).unwrap(), 10_000);
        file.fill().unwrap();
        file.touch().unwrap();
        assert!(memory.try_take());
        assert_eq!(path.metadata().unwrap().len(), DATA_AT + 10_000);
    }
}
