//! Simulators that run Plimsoll's policy core in virtual time.
//!
//! [`interference`] simulates, period by period, the cost of bursts of some
//! groups to the others. [`host`] simulates a whole machine that runs a
//! [`scenario`], event by event.
//!
//! Both call the core (`plimsoll-policy`) for every decision that the core
//! makes, so they show what the kernel would do. The same seed gives the same
//! result.

pub mod host;
pub mod interference;
pub mod scenario;
