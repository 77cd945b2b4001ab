//! Tests that share a loaded scheduler, which a group without limits keeps loaded.
//!
//! In one process the first test loads it, and the end of the process unloads it. After a failed
//! test the next one loads it anew. Nothing is left by a test if its slots, cgroups and files are
//! gone, and the kernel has never ended the scheduler.

use std::panic::catch_unwind;
use std::sync::{Once, PoisonError};

use crate::rig::{Loan, RIG, Rig};

mod bandwidth;
mod cgroups;
mod churn;
mod handover;
mod locks;
mod members;
mod stress;
mod trace;
mod watchdog;

/// The rig that the last test has left, or a new one. Its owner was started on demand, by a
/// command.
pub fn with_command() -> Loan {
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function may be called at any time, also when this thread has ended.
    AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(end_of_process) }, 0));
    Loan::of(true, |left| left.unwrap_or_else(|| Rig::new().kept()))
}

/// Unloads the scheduler. If it cannot, the process fails.
extern "C" fn end_of_process() {
    let ended = catch_unwind(|| {
        let left = RIG.lock().unwrap_or_else(PoisonError::into_inner).take();
        left.into_iter().for_each(Rig::unload);
    });
    if ended.is_err() {
        eprintln!("the scheduler that the tests have shared was not unloaded");
        // SAFETY: it ends the process without further handlers.
        unsafe { libc::_exit(101) };
    }
}
