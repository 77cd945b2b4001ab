//! Foreign cgroups with knobs: every change is undone, however the process ends.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod foreign;
mod knobs;
mod many;
mod refused;
mod rig;
