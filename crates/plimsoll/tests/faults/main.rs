//! Faults.
#![allow(clippy::unwrap_used)]
