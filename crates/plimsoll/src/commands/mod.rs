//! The commands that are short enough for one file each.

pub mod debug;
pub mod doctor;
pub mod documents;
pub mod reload;
pub mod restore;
pub mod set;
pub mod show;
#[cfg(feature = "sched-ext")]
pub mod trace;
