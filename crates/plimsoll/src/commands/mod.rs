//! The commands that are short enough for one file each.

pub mod doctor;
pub mod documents;
pub mod restore;
pub mod set;
pub mod show;
