//! Bandwidth between the knobs, in nanoseconds, and the kernel's files, in microseconds.

use plimsoll_cgroupfs::CpuMax;

use crate::knobs::units::NSEC_PER_USEC;
use crate::knobs::{Bandwidth, Quota};

impl From<Bandwidth> for CpuMax {
    /// Fractions of a microsecond are cut off.
    fn from(bandwidth: Bandwidth) -> Self {
        let usec = |ns: u64| ns / NSEC_PER_USEC;
        Self {
            quota_usec: bandwidth.quota.quota_ns.map(usec),
            period_usec: usec(bandwidth.quota.period_ns),
            burst_usec: usec(bandwidth.burst_ns),
        }
    }
}

impl From<CpuMax> for Bandwidth {
    fn from(max: CpuMax) -> Self {
        let ns = |usec: u64| usec.saturating_mul(NSEC_PER_USEC);
        Self {
            quota: Quota {
                quota_ns: max.quota_usec.map(ns),
                period_ns: ns(max.period_usec),
            },
            burst_ns: ns(max.burst_usec),
        }
    }
}
