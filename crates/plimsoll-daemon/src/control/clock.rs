//! The clock of the server's deadlines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval at which a manual clock is looked at, for its steps wake no thread.
const LOOK_AT_MANUAL: Duration = Duration::from_millis(2);

/// The clock that deadlines are kept by. Clones show the same time.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    Monotonic,
    /// Time that only a test advances; see [`Clock::manual`].
    Manual {
        start: Instant,
        passed_ns: Arc<AtomicU64>,
    },
}

impl Clock {
    /// A clock that stands still but for [`Clock::advance`], for tests.
    #[must_use]
    pub fn manual() -> Self {
        Self::Manual {
            start: Instant::now(),
            passed_ns: Arc::default(),
        }
    }

    /// Advances a manual clock; another one is left alone.
    pub fn advance(&self, time: Duration) {
        if let Self::Manual { passed_ns, .. } = self {
            let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            passed_ns.fetch_add(time_ns, Ordering::SeqCst);
        }
    }

    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Monotonic => Instant::now(),
            Self::Manual { start, passed_ns } => {
                *start + Duration::from_nanos(passed_ns.load(Ordering::SeqCst))
            }
        }
    }

    /// Returns how long to block at most until `time` has passed on this clock.
    pub(super) fn block_for(&self, time: Duration) -> Duration {
        match self {
            Self::Monotonic => time,
            Self::Manual { .. } => time.min(LOOK_AT_MANUAL),
        }
    }
}
