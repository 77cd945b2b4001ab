//! The scheduler's variables that user space also writes, through a mapping of their memory.

use std::mem::{offset_of, size_of};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::Error;
use crate::ExitReport;
use crate::skel::types;

/// The initialised variables of the scheduler.
#[derive(Debug)]
pub(crate) struct SharedData {
    start: NonNull<libc::c_void>,
    length: NonZeroUsize,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access is
// atomic.
unsafe impl Send for SharedData {}
// SAFETY: as above.
unsafe impl Sync for SharedData {}

impl SharedData {
    /// Maps the memory behind a map of variables.
    pub fn map(data: &MapHandle) -> Result<Self, Error> {
        let too_small = (data.value_size() as usize) < size_of::<types::data>();
        let length = NonZeroUsize::new(size_of::<types::data>());
        let (Some(length), false) = (length, too_small) else {
            return Err(Error::OtherVersion);
        };
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, data.as_fd(), 0) };
        let start = start.map_err(|e| Error::change("map the scheduler's variables", e))?;
        Ok(Self { start, length })
    }

    fn variable(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is that of a field within the mapping, which
        // lives as long as `self`; the compiler of the BPF program aligns it.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().byte_add(offset).cast()) }
    }

    fn long_variable(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as for `variable`; a field of 64 bits is aligned to as many.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().byte_add(offset).cast()) }
    }

    /// Exit report, without the dump, if the kernel has thrown the scheduler out; `None` while it
    /// runs.
    pub fn exited(&self) -> Option<ExitReport> {
        // SAFETY: the offset is that of the record within the mapping, which
        // lives as long as `self`.
        unsafe {
            ExitReport::of(
                self.start
                    .as_ptr()
                    .byte_add(offset_of!(types::data, uei))
                    .cast(),
            )
        }
    }

    /// One more than the highest slot in use so far.
    pub fn nr_slots_used(&self) -> u32 {
        self.variable(offset_of!(types::data, nr_slots_used))
            .load(Ordering::Acquire)
    }

    /// Has the bandwidth of the group in `slot` traced until the scheduler's clock shows
    /// `until_ns`.
    pub fn trace(&self, slot: u32, until_ns: u64) {
        self.variable(offset_of!(types::data, trace_slot))
            .store(slot, Ordering::Relaxed);
        self.long_variable(offset_of!(types::data, trace_until_ns))
            .store(until_ns, Ordering::Release);
    }
}

impl Drop for SharedData {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and `self` was the last to use it.
        let _ = unsafe { munmap(self.start, self.length.get()) };
    }
}
