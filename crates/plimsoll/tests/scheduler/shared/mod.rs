//! Tests that share a loaded scheduler, which a group without limits keeps loaded.
//!
//! In one process the first test loads it, and the end of the process unloads it. After a failed
//! test the next one loads it anew. Nothing is left by a test if its slots, cgroups and files are
//! gone.

use std::panic::catch_unwind;
use std::sync::{Once, PoisonError};

use crate::daemon_rig::{Daemon, rule_of};
use crate::rig::{Keeper, Loan, RIG, Rig};

mod daemon;
mod run;

/// A rig whose owner was started on demand, by a command.
pub fn with_command() -> Loan {
    let is_wanted = |keeper: &Keeper| matches!(keeper, Keeper::Command(_));
    with(is_wanted, |rig| {
        let keeper = rig.batch_sleeper("keeper");
        rig.keep(Keeper::Command(keeper))
    })
}

/// A rig whose owner is a daemon with a file.
pub fn with_daemon() -> Loan {
    let is_wanted = |keeper: &Keeper| matches!(keeper, Keeper::Daemon(..));
    with(is_wanted, |rig| {
        let group = rig.host.base().child("keeper");
        group.create().unwrap();
        let sleeper = rig.host.start_in(&group, ["sleep", "100000"]);
        let rule = rule_of("keeper", &group, "class = \"batch\"");
        let daemon = Daemon::start(rig.host, &rule);
        rig.wait_until_scheduled(&group);
        rig.keep(Keeper::Daemon(Box::new(daemon), rule, sleeper))
    })
}

/// The rig that the last test has left, if it is of the wanted kind, else a new one.
fn with(is_wanted: impl FnOnce(&Keeper) -> bool, load: impl FnOnce(Rig) -> Rig) -> Loan {
    static AT_EXIT: Once = Once::new();
    let mut loan = Loan::begin();
    let left = loan.left().take();
    let rig = match left {
        Some(rig) if rig.keeper().is_some_and(is_wanted) => rig,
        other => {
            other.into_iter().for_each(Rig::unload);
            load(Rig::new())
        }
    };
    // SAFETY: the function may be called at any time, also when this thread has ended.
    AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(end_of_process) }, 0));
    loan.with(rig).staying()
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
