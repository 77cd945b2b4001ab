//! Times and shares that SPEC.md promises, on a running kernel in virtual time.
//!
//! One instruction of the guest takes one nanosecond of its time, and nothing else runs in the
//! guest: every figure is the same in every run, on any host. So each is measured once and
//! compared with the promise itself. `make timing-test` runs them; one
//! file per mechanism.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../faults/namespace.rs"]
mod namespace;
#[path = "../daemon/rig.rs"]
mod rig;

mod bandwidth;
mod batch;
mod caps;
mod control;
mod control_faults;
mod daemon;
mod headroom;
mod latency;
mod measured;
mod model;
mod reaction;
mod soft_cap;
mod weights;

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "cgroup";
