//! Short commands, a file for each.

pub mod completions;
pub mod debug;
pub mod doctor;
pub mod reload;
pub mod restore;
pub mod set;
pub mod show;
#[cfg(feature = "sched-ext")]
pub mod trace;
