//! The sched_ext enforcer.

pub mod caps;
mod cgroups;
mod cpu_limit;
mod fairness;
mod headroom;
mod inversion;
mod servers;
mod strictness;
mod tolerance;
mod wakeup;
