//! The daemon under faults: kills, stops, a full disk, floods and garbage. The limits in force
//! must match the policy.
//!
//! Random choices have a seed, which is printed; `PLIMSOLL_SEED` repeats it.

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

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "cgroup";
