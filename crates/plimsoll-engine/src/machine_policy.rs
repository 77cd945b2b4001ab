//! Policy of the whole machine.

use crate::knobs::{BandwidthSlice, HeadroomDemand};

/// Policy that no single group has: all groups and the configuration make it together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachinePolicy {
    /// Headroom that batch work leaves, and its tolerance.
    pub demand: HeadroomDemand,
    /// Runtime that a CPU takes from a quota at a time; `None`: the host's own value.
    pub bandwidth_slice: Option<BandwidthSlice>,
}
