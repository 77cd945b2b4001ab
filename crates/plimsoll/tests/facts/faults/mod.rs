//! The daemon under faults: kills and stops. The limits in force must match the
//! policy.

mod kill;
mod left_behind;
