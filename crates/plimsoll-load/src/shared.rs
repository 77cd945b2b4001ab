//! Memory shared with forked children, and control of them.
//!
//! Children of [`fork_child`] use only arithmetic, atomics on shared memory and
//! plain system calls (all async-signal-safe), so forking is safe even while
//! the parent has other threads.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::unistd::{ForkResult, Pid, fork, getppid};

use crate::error::LoadError;

/// Counters of one child, on a cache line (and its prefetched neighbour) of
/// their own.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) units: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    /// Longest time without progress, in ns.
    pub(crate) gap_ns: AtomicU64,
}

#[repr(C, align(128))]
struct Header {
    stop: AtomicBool,
}

/// A stop flag and counters in memory that forked children share with their parent.
#[derive(Debug)]
pub(crate) struct Board {
    start: NonNull<std::ffi::c_void>,
    bytes: NonZeroUsize,
    slots: usize,
}

// SAFETY: the mapping lives until drop, is not tied to a thread, and is
// accessed only through shared references to atomics.
unsafe impl Send for Board {}
// SAFETY: as above; atomics may be used from several threads at once.
unsafe impl Sync for Board {}

impl Board {
    pub(crate) fn new(slots: usize) -> Result<Self, LoadError> {
        let bytes = size_of::<Header>() + slots * size_of::<Slot>();
        let bytes = NonZeroUsize::new(bytes).unwrap_or(NonZeroUsize::MIN);
        // SAFETY: a new anonymous mapping at an address chosen by the kernel
        // overlaps no memory in use.
        let start = unsafe {
            mmap_anonymous(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
            )
        }
        .map_err(|e| LoadError::io("mapping shared memory", e))?;
        Ok(Self {
            start,
            bytes,
            slots,
        })
    }

    /// Flag that ends all processes that check it.
    pub(crate) fn stop(&self) -> &AtomicBool {
        // SAFETY: the mapping is page-aligned, zeroed (a valid header) and starts with the header.
        unsafe { &self.start.cast::<Header>().as_ref().stop }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        // SAFETY: `new` allocated the header and `slots` slots after it; the
        // header's size is a multiple of the slot's alignment; zeroed memory is
        // a valid slot; all fields are atomic.
        unsafe {
            let first = self.start.byte_add(size_of::<Header>()).cast::<Slot>();
            std::slice::from_raw_parts(first.as_ptr(), self.slots)
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.stop().store(true, Ordering::Relaxed);
        // SAFETY: `start` and `bytes` are the mapping created by `new`, and no
        // reference into it outlives `self`. Children have a mapping of their
        // own.
        let unmapped = unsafe { munmap(self.start, self.bytes.get()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Forks a child that runs `body` and exits with status 0, or 1 if `body`
/// returns false.
///
/// # Safety
/// `body` must be async-signal-safe: no allocation, no locks, no panic.
pub(crate) unsafe fn fork_child(body: impl FnOnce() -> bool) -> nix::Result<Pid> {
    // SAFETY: the child calls only `body`, which the caller guarantees to be
    // safe, and `_exit`.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let status = i32::from(!body());
            // SAFETY: ends the child at once, without running exit handlers of
            // the parent.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Whether the calling child's parent is still `parent`. An orphaned child
/// should end.
pub(crate) fn has_parent(parent: Pid) -> bool {
    getppid() == parent
}

/// Exit of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// Exit status 0.
    pub(crate) success: bool,
    /// User and system time of the child, fork and exit included, in ns.
    pub(crate) cpu_ns: u64,
}

pub(crate) fn wait_for(child: Pid) -> Result<Ended, LoadError> {
    let mut status = 0;
    // SAFETY: `rusage` is a plain C struct for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live locals of the types that wait4 writes.
        let reaped = unsafe { libc::wait4(child.as_raw(), &raw mut status, 0, &raw mut usage) };
        if reaped >= 0 {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(LoadError::io(format!("waiting for process {child}"), error));
        }
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
    use crate::clock::{CpuClock, burn};

    #[test]
    fn child_shares_the_board_and_reports_its_cpu_time() {
        let board = Board::new(2).unwrap();
        let slot = &board.slots()[1];
        // SAFETY: arithmetic, atomics and clock_gettime only.
        let child = unsafe {
            fork_child(|| {
                let burnt = burn(CpuClock::Process, 20_000_000, board.stop());
                slot.cpu_ns.store(burnt.cpu_ns, Ordering::Relaxed);
                burnt.complete
            })
        }
        .unwrap();
        let ended = wait_for(child).unwrap();
        let told = slot.cpu_ns.load(Ordering::Relaxed);
        assert!(ended.success && told >= 20_000_000);
        // rusage counts microseconds.
        assert!(ended.cpu_ns + 1_000 >= told, "{ended:?} {told}");
        assert_eq!(board.slots()[0].cpu_ns.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn stopped_child_is_reported() {
        let board = Board::new(1).unwrap();
        board.stop().store(true, Ordering::Relaxed);
        // SAFETY: arithmetic, atomics and clock_gettime only.
        let child =
            unsafe { fork_child(|| burn(CpuClock::Process, u64::MAX, board.stop()).complete) };
        assert!(!wait_for(child.unwrap()).unwrap().success);
        assert!(wait_for(Pid::this()).is_err());
    }
}
