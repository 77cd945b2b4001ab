//! Facts about cgroups on a running kernel, through the program and its owner: a group is limited,
//! inherited, adopted, undone, refused.
//!
//! `make test` runs them on this machine's kernel, `make test-kernel` on the kernels of Debian.
//! They assert values of the kernel's files, counters, members, messages and the order of events.
//! Not one looks at a clock: what takes how long is measured by the lab.
//!
//! What needs something that not every machine has is in a module that says so, `v1_only`,
//! `v2_only`, `without_sched_ext` or `vm_only`. A runner skips these by name; where it does not,
//! they fail.
#![allow(clippy::unwrap_used)]

#[path = "../../../plimsoll-cgroupfs/tests/conformance/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;

mod account;
mod bandwidth;
mod cgroupfs;
mod command_process;
mod daemon;
mod doctor;
mod documents;
mod faults;
mod guard;
mod handles;
mod moments;
mod names;
mod nice;
mod owner;
mod owner_process;
mod permission;
mod places;
mod reader;
mod refusals;
mod run;
mod set;
mod soft_cap;
mod undo;

use daemon::rig;

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "cgroup";
