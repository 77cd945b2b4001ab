//! The daemon under faults: it is killed, stopped, starved of disk, flooded
//! and talked to in garbage, and what is in force is what the policy says.
//!
//! What is random has a seed, which is printed; `PLIMSOLL_SEED` repeats it.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../daemon/rig.rs"]
mod rig;

mod clients;
mod clock;
mod disk_full;
mod flood;
mod kill;
mod left_behind;
mod namespace;
mod random;
mod soak;

/// What the daemons of these tests enforce with, unless they say otherwise.
const ENFORCER: &str = "cgroup";
