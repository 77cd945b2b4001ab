//! Control loops in user space for mechanisms without a knob in the stock kernel: headroom, soft
//! caps, and caps of single tasks. Also usage rates of tasks, of which the kernel keeps no average.

pub(crate) mod headroom;
pub(crate) mod per_task;
pub(crate) mod soft_cap;
pub(crate) mod task_rates;

use std::time::Instant;

/// Clock of the control thread for the policy core: nanoseconds since an arbitrary start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoreClock {
    start: Instant,
}

impl CoreClock {
    pub fn starting_at(start: Instant) -> Self {
        Self { start }
    }

    pub fn at(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}
