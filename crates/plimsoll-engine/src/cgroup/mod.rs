//! The enforcer on control groups of stock kernels, version 1 and 2.
//!
//! Which kernel file of which hierarchy holds a value is known to `plimsoll-cgroupfs` alone.

mod audit;
pub(crate) mod bandwidth;
mod busy;
mod change;
mod enforcer;
mod group;
mod level;
mod place;
mod probe;
mod wanted;

pub use crate::control::headroom::HeadroomControl;
pub use busy::BusyMeter;
pub use enforcer::CgroupEnforcer;
pub use group::context::{cannot_yield, yields};
pub use group::foreign::check::check_one_cgroup;
pub use place::check_place;
pub use probe::try_group;
