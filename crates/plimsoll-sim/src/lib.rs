//! Plimsoll's policy core in virtual time, where nothing is at stake.
//!
//! Two simulators. [`interference`] asks what the bursts of some groups cost
//! the others, period by period. [`host`] is a whole machine, event by event,
//! that runs a [`scenario`].
//!
//! Both call the core (`plimsoll-policy`) for every decision that the core
//! makes: what is seen here is what the kernel would do. The same seed gives
//! the same result.

pub mod host;
pub mod interference;
pub mod scenario;
