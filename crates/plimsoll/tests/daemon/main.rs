//! End-to-end tests of `plimsoll daemon`: promises to operators and users, checked in the kernel's
//! files.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod damage;
mod following;
mod foreign;
mod headroom;
mod lifecycle;
mod reload;
mod restore;
mod rig;
mod rules;
mod run;
mod set;
mod show;
mod slice;
mod users;

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "cgroup";
