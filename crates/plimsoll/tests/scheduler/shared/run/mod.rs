//! Groups of commands, with an owner that was started on demand.

mod bandwidth;
mod handover;
mod policies;
mod stress;
mod trace;
mod watchdog;
