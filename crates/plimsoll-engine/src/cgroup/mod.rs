//! Control groups, version 1 and 2, behind one interface.
//!
//! The rest of the engine says "quota", "idle", "usage"; only this module
//! knows in which file of which hierarchy that is.

mod busy;
mod enforcer;
mod files;
mod foreign;
pub(crate) mod group;
mod held;
mod hierarchy;
pub(crate) mod layout;
mod managed;
mod stat;

pub use busy::BusyMeter;
pub(crate) use busy::UsageCounter;
pub use enforcer::CgroupEnforcer;
pub(crate) use files::read_ids;
pub use files::{read_text, threads_below, write_text};
pub use foreign::set_foreign;
pub(crate) use group::move_process;
pub use group::{CpuGroup, Membership};
pub use held::{check_foreign, check_held, shared_journal};
pub use hierarchy::{BASE_VARIABLE, Hierarchy, Version};
pub use stat::CpuStat;
