//! Bounds of this crate. Values out of bounds are refused, not clamped.

use std::time::Duration;

/// Maximum number of worker or burner threads of one workload.
pub(crate) const THREADS_MAX: usize = 1_024;
/// Maximum rate of a generator, in requests per second.
pub(crate) const RATE_MAX: f64 = 1_000_000.0;
/// Minimum rate in requests per second: one in about 17 minutes.
pub(crate) const RATE_MIN: f64 = 0.001;
/// Maximum number of requests of one run: rate × (warm-up + duration). An
/// outcome takes 24 bytes.
pub(crate) const REQUESTS_MAX: f64 = 1e7;
pub(crate) const BURST_SIZE_MAX: i64 = 100_000;
pub(crate) const BURST_EVERY_MIN: Duration = Duration::from_millis(1);
/// Longest run, warm-up and grace included.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
pub(crate) const DURATION_MIN: Duration = Duration::from_millis(1);
/// Smallest mean CPU demand of a request: below this, reading the CPU clock costs more.
pub(crate) const DEMAND_MIN: Duration = Duration::from_micros(1);
/// Largest CPU demand of one request; longer draws of a heavy-tailed
/// distribution are cut to this.
pub(crate) const DEMAND_MAX: Duration = Duration::from_secs(10);
pub(crate) const SERIES_INTERVAL_MIN: Duration = Duration::from_millis(1);
pub(crate) const SERIES_POINTS_MAX: u128 = 10_000;
pub(crate) const STORM_PROCESSES_MAX: i64 = 1_000_000;
/// Maximum number of processes of a storm that are alive at once.
pub(crate) const STORM_PARALLEL_MAX: i64 = 256;
pub(crate) const STORM_CPU_EACH_MIN: Duration = Duration::from_micros(1);
pub(crate) const STORM_CPU_EACH_MAX: Duration = Duration::from_secs(60);
pub(crate) const GRAIN_MIN: Duration = Duration::from_micros(100);
pub(crate) const GRAIN_MAX: Duration = Duration::from_secs(1);
/// CPU time that a thread of a steady load may be behind before the rest is
/// written off (and reported). Without a bound, a long starvation would be
/// followed by an equally long burst.
pub(crate) const STEADY_DEBT_MAX: Duration = Duration::from_secs(1);
