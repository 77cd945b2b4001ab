//! The batch class.

use crate::ffi;

pub const SLICE_DEFAULT_NS: u64 = ffi::PLIM_BATCH_SLICE_DEFAULT_NS;
