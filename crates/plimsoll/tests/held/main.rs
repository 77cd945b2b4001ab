//! Cgroups that somebody else made, held by the enforcer: whatever is done to
//! them comes back, however it ends.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod foreign;
mod knobs;
mod many;
mod refused;
mod rig;
