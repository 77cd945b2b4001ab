//! The policy of the whole machine.

use crate::knobs::{BandwidthSlice, Demand};

/// Policy that no single group has: all groups and the configuration make it together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachinePolicy {
    /// The headroom that batch work leaves, and its tolerance.
    pub demand: Demand,
    /// Runtime that a CPU takes from a quota at a time; `None`: what the host has.
    pub bandwidth_slice: Option<BandwidthSlice>,
}
