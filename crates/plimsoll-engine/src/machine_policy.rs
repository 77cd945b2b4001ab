//! The policy of the whole machine: what no single group has.

use crate::knobs::{BandwidthSlice, Demand};

/// What the machine is to keep, merged from all groups and the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachinePolicy {
    /// The headroom that batch work leaves, and its tolerance.
    pub demand: Demand,
    /// Runtime that a CPU takes from a quota at a time; `None`: what the host has.
    pub bandwidth_slice: Option<BandwidthSlice>,
}
