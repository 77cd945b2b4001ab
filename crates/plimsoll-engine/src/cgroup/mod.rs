//! The enforcer on control groups of stock kernels, version 1 and 2.
//!
//! Which kernel file of which hierarchy holds a value is known to `plimsoll-cgroupfs` alone.

mod busy;
mod cpu_max;
mod enforcer;
mod held;
pub(crate) mod layout;
mod managed;
mod move_entry;

pub use busy::BusyMeter;
pub use enforcer::CgroupEnforcer;
pub use held::check_held;
