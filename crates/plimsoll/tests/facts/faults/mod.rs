//! The daemon under faults: kills, stops, a full disk. The limits in force must match the
//! policy.

mod clock;
mod disk_full;
mod kill;
mod left_behind;
pub mod namespace;
