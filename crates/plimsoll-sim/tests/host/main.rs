//! The host simulator against theory, against the core driven directly, and
//! against what each mechanism promises.

#![allow(clippy::unwrap_used)]

mod bandwidth;
mod batch;
mod caps;
mod fixture;
mod generate;
mod headroom;
mod placement;
mod random;
mod repeatable;
mod theory;
mod workloads;
