//! Rust binding of Plimsoll's policy core.
//!
//! Every decision of Plimsoll is made by small pure functions in header-only C
//! (`policy/include/plimsoll`), which also run inside the kernel and are the
//! subject of the proofs. This crate is a thin wrapper: it checks parameters,
//! keeps the structs, and calls the core. It makes no decisions itself.
//!
//! Times are nanoseconds on a clock of the caller's choice; the crate never
//! reads a clock. Shares are parts per million (`_ppm`) or per mille
//! (`_permille`) of one CPU, unless stated otherwise.
//!
//! One module per header, but for those of the guard and of the server, which only the kernel calls:
//! [`bandwidth`], [`batch`] (of which the rest is the kernel's, too), [`headroom`], [`order`],
//! [`ratecap`], [`sharing`].

pub mod bandwidth;
pub mod batch;
mod ffi;
pub mod headroom;
pub mod order;
pub mod ratecap;
#[cfg(test)]
mod server;
pub mod sharing;

use thiserror::Error;

pub const NSEC_PER_MSEC: u64 = ffi::PLIM_NSEC_PER_MSEC;
pub const NSEC_PER_SEC: u64 = ffi::PLIM_NSEC_PER_SEC;
pub const PPM: u64 = ffi::PLIM_PPM;
/// Maximum of a runtime, a quota, a burst, and of their sum: 2^44 ns.
pub const RUNTIME_MAX_NS: u64 = ffi::PLIM_RUNTIME_MAX_NS;
pub const CPUS_MAX: u32 = ffi::PLIM_CPUS_MAX;

/// Error of parameters that the core refuses. A caller that has to say which one, and what is
/// allowed, says it in the words of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a parameter is out of the range of the policy core")]
pub struct OutOfRange;

impl OutOfRange {
    fn unless(in_range: bool) -> Result<(), Self> {
        if in_range { Ok(()) } else { Err(Self) }
    }
}
