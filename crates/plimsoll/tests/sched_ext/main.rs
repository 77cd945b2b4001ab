//! The sched_ext enforcer on a running kernel, through the real binary.
//!
//! These tests are for the virtual machine of `vm/run`: `crates/plimsoll/tests/in-vm
//! sched_ext`. One file per mechanism. What is asserted are counters of the kernel and of the
//! scheduler, over windows that begin when the load has started; the emulated machine stands
//! still now and then, and its counters with it, so that shares hold all the same.
// tests/in-vm sets the feature.
#![cfg(feature = "vm-sched-ext")]
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod bandwidth;
mod caps;
mod cpu_limit;
mod daemon;
#[path = "../daemon/rig.rs"]
mod daemon_rig;
mod exits;
mod fairness;
mod four_cpus;
mod handover;
mod headroom;
mod inversion;
mod left_behind;
mod reload;
mod rig;
mod servers;
mod stress;
mod strictness;
mod tolerance;
mod trace;
mod undo;
mod wakeup;
mod watchdog;

/// What the daemons of these tests enforce with, unless they say otherwise.
const ENFORCER: &str = "auto";
