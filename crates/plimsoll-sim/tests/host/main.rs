//! Tests of the host simulator against queueing theory, the core driven
//! directly, and the promises of each mechanism.

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
