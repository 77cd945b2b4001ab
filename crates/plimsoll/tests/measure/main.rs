//! Figures that SPEC.md promises, on a running kernel in virtual time, for the lab.
//!
//! Each test measures, and prints a figure with its bounds. A missed bound is no failure: a single
//! sample of a loaded kernel changes with each byte of the program, so `plimsoll-lab promises`
//! takes several, and docs/promises.json says what is met. A test fails only if it cannot measure.
//!
//! The module of a test is its machine: `stock` (Linux 6.18, two CPUs), `scheduler` (7, two),
//! `one_cpu` and `four_cpus` (7).
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../facts/daemon/rig.rs"]
mod daemon_rig;
#[allow(dead_code)]
#[path = "../scheduler/rig.rs"]
mod scheduler_rig;

mod clock;
mod figure;
mod four_cpus;
mod lab;
mod meter;
mod one_cpu;
mod reaction;
mod scheduler;
mod stock;
mod switches;

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "cgroup";
