//! Limits of the weights by which tasks and groups are ordered.

use crate::ffi;

/// The lowest nice value, which has the largest weight.
pub const NICE_MIN: i32 = ffi::PLIM_NICE_MIN;
/// The highest nice value, which has the smallest weight.
pub const NICE_MAX: i32 = ffi::PLIM_NICE_MAX;
pub const GROUP_WEIGHT_MIN: u32 = ffi::PLIM_GROUP_WEIGHT_MIN;
pub const GROUP_WEIGHT_MAX: u32 = ffi::PLIM_GROUP_WEIGHT_MAX;

#[cfg(test)]
mod tests;
