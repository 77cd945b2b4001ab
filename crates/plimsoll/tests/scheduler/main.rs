//! Facts about the sched_ext enforcer on a running kernel, through the real binary.
//!
//! These tests use the whole machine, so they run in guests only: `make test-kernel`. To load the
//! scheduler takes seconds there, so the tests of `shared` share one that stays loaded, if they run
//! in one process (`--test-threads=1`); each runs in one of its own as well. The others load and
//! unload it themselves.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod daemon;
#[path = "../facts/daemon/rig.rs"]
mod daemon_rig;
mod exits;
mod foreign;
mod loading;
mod on_6_18;
mod rig;
mod shared;
mod slice;
mod undo;

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "sched-ext";
