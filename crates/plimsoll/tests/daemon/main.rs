//! `plimsoll daemon` from end to end: what an operator and the users of a host
//! are promised, looked at in the kernel's files.

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

/// What the daemons of these tests enforce with, unless they say otherwise.
const ENFORCER: &str = "cgroup";
