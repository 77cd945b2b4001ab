//! The kernel's files of control groups, version 1 and 2.
//!
//! A [`Hierarchy`] says where the cpu controller is mounted and which cgroup a process is in; a
//! [`CpuGroup`] is one cgroup, with a method for each of its files. Callers say "quota", "idle",
//! "usage"; only this crate knows in which file of which hierarchy that is and in which unit.
//!
//! Facts only: which values are right, which cgroups are Plimsoll's and how a change is undone is
//! decided by the layers above.

mod cpu_max;
mod error;
mod files;
mod group;
mod hierarchy;
pub mod os;
mod proc;
#[cfg(feature = "simulated")]
pub mod simulated;
mod stat;
mod usage;
mod version;

pub use cpu_max::CpuMax;
pub use error::{CgroupError, Result};
pub use files::{read_ids, read_text, threads_below, write_text};
pub use group::{CpuGroup, WEIGHT_DEFAULT, move_process};
pub use hierarchy::{BASE_VARIABLE, Hierarchy};
pub use stat::CpuStat;
pub use usage::UsageCounter;
pub use version::Version;
