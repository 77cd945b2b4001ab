//! Short commands, a file for each.

pub mod completions;
pub mod debug;
pub mod doctor;
pub mod reload;
pub mod restore;
pub mod set;
pub mod show;
pub mod trace;
