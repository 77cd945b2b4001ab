//! The enforcer by cgroup knobs.

mod bandwidth;
mod batch;
pub mod caps;
mod control;
mod daemon;
mod headroom;
mod latency;
mod reaction;
mod soft_cap;
mod weights;
