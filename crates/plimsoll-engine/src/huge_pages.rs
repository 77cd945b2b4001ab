//! Whether the kernel makes huge pages of this process's memory.
//!
//! Its thread `khugepaged` does that with the lowest priority, and while it does, no
//! thread of the process can map, unmap or touch new memory. Where work keeps all CPUs
//! busy that thread may wait for its turn for a long time, and whoever controls that
//! work would wait with it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process does without huge pages, and did not when it was started.
static DOES_WITHOUT: AtomicBool = AtomicBool::new(false);

/// Only system calls, and safe between fork and exec.
fn control(option: libc::c_int, value: libc::c_ulong) -> io::Result<libc::c_int> {
    let none: libc::c_ulong = 0;
    // SAFETY: these options take integers only.
    let answer = unsafe { libc::prctl(option, value, none, none, none) };
    match answer {
        0.. => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Does without huge pages in this process. What it starts inherits that, unless it
/// calls [`allow_again_in_child`].
///
/// # Errors
/// When the kernel has no such switch.
pub fn do_without() -> io::Result<()> {
    // Whoever has started this process without them meant all that it starts.
    if control(libc::PR_GET_THP_DISABLE, 0)? == 0 {
        control(libc::PR_SET_THP_DISABLE, 1)?;
        DOES_WITHOUT.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// For a child between fork and exec: what it starts may have huge pages, unless
/// this process was started without.
pub fn allow_again_in_child() {
    if DOES_WITHOUT.load(Ordering::Relaxed) {
        // The command runs without them; that is no reason not to run it.
        let _ = control(libc::PR_SET_THP_DISABLE, 0);
    }
}
