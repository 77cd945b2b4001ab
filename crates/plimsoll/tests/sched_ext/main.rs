//! The sched_ext enforcer on a running kernel, through the real binary.
//!
//! These tests are for the virtual machine of `vm/run` in virtual time:
//! `make sched-ext-test sched-ext-more`. One file per mechanism. Times and shares are those of
//! SPEC, each measured once: a run can be repeated to the last digit. A promise that does not
//! hold yet is marked with `known_defect`.
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
mod one_cpu;
mod reload;
mod rig;
mod servers;
mod slice;
mod stress;
mod strictness;
mod tolerance;
mod trace;
mod undo;
mod wakeup;
mod watchdog;

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "auto";
