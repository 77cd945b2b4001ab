//! Simulator of the interference of bursts: period by period, what bursts of some groups cost the
//! others.
//!
//! It calls the core (`plimsoll-policy`) for every decision that the core makes, so it shows what
//! the kernel would do. The same seed gives the same result.

pub mod interference;
