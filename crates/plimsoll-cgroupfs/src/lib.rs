//! The kernel's files of control groups, version 1 and 2.
//!
//! A [`Hierarchy`] finds the mount of the cpu controller and the cgroups of processes; a
//! [`CpuGroup`] is a cgroup, with a method for each of its files. Callers use terms such as quota,
//! idle and usage; only this crate knows the files, hierarchies and units.
//!
//! The layers above decide which values are right, which cgroups are Plimsoll's own, and how
//! changes are undone.

mod cpu_max;
mod entry;
mod error;
pub mod events;
mod files;
mod group;
mod hierarchy;
pub mod name;
pub mod os;
mod proc;
#[cfg(feature = "simulated")]
pub mod simulated;
mod stat;
mod usage;
mod version;

pub use cpu_max::CpuMax;
pub use error::{CgroupError, Result};
pub use files::{
    check_folder, find_folder, folders_in, read_ids, read_text, threads_below, tree, write_text,
    write_text_of,
};
pub use group::{CgroupKind, CpuGroup, WEIGHT_DEFAULT, move_process};
pub use hierarchy::{BASE_VARIABLE, Hierarchy};
pub use stat::CpuStat;
pub use usage::UsageCounter;
pub use version::Version;
