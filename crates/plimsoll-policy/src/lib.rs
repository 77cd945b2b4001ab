//! Plimsoll's policy core, bound for Rust.
//!
//! Every decision of Plimsoll is made by small pure functions in header-only
//! C (`policy/include/plimsoll`), which also run inside the kernel and are
//! what the proofs prove. This crate wraps them thinly: it checks parameters,
//! keeps the structs, and calls the core. It decides nothing itself.
//!
//! Times are nanoseconds, on one clock that the caller chooses; the crate
//! never reads one. Shares are parts per million (`_ppm`) or per mille
//! (`_permille`) of one CPU, unless said otherwise.
//!
//! One module per header: [`bandwidth`], [`batch`], [`headroom`],
//! [`ratecap`].

pub mod bandwidth;
pub mod batch;
mod ffi;
pub mod headroom;
pub mod ratecap;

/// One millisecond in nanoseconds.
pub const NSEC_PER_MSEC: u64 = ffi::PLIM_NSEC_PER_MSEC;
/// One second in nanoseconds.
pub const NSEC_PER_SEC: u64 = ffi::PLIM_NSEC_PER_SEC;
/// A share of one, in parts per million.
pub const PPM: u64 = ffi::PLIM_PPM;
/// A share of one, in per mille.
pub const PERMILLE: u64 = ffi::PLIM_PERMILLE;
/// No runtime, quota or burst, nor their sum, is larger: 2^44 ns.
pub const RUNTIME_MAX_NS: u64 = ffi::PLIM_RUNTIME_MAX_NS;
/// Elapsed times and single runs longer than this count as this: 2^43 ns.
pub const ELAPSED_MAX_NS: u64 = ffi::PLIM_ELAPSED_MAX_NS;
/// The most CPUs of one host.
pub const CPUS_MAX: u32 = ffi::PLIM_CPUS_MAX;
