//! Groups of commands, with an owner that was started on demand.

mod bandwidth;
mod cgroups;
mod churn;
mod handover;
mod locks;
mod members;
mod stress;
mod trace;
mod watchdog;
