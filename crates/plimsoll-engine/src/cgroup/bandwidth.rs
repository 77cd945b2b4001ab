//! Bandwidth as the kernel takes it: in whole microseconds, within its limits. Enforcers know no
//! other.

use plimsoll_cgroupfs::{CpuMax, Version};
use plimsoll_policy::ratecap::DEPTH_DEFAULT_NS;

use crate::knobs::units::NSEC_PER_USEC;
use crate::knobs::{Bandwidth, Cap, Quota};

/// Period of a tree cap, short so that work is cut in small pieces.
const CAP_PERIOD_MS: u64 = 10;
/// Period of a wide tree cap. With 10 ms, the runtime that short tasks leave behind on their CPUs
/// cost a cap of 90 % up to 3 % of its rate; with 20 ms, nothing that could be measured.
const WIDE_CAP_PERIOD_MS: u64 = 20;
/// Lowest cap that counts as wide.
const WIDE_CAP_PERMILLE: u64 = 500;
/// Smallest quota that the kernel takes.
pub(crate) const KERNEL_QUOTA_MIN_NS: u64 = plimsoll_policy::sharing::LEAST_NS;
/// Longest period that the kernel takes.
pub(crate) const KERNEL_PERIOD_MAX_USEC: u64 = 1_000_000;
const USEC_PER_MSEC: u64 = 1_000;

impl From<Bandwidth> for CpuMax {
    /// Cuts off fractions of a microsecond.
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

/// Lowest rate that the kernel takes.
pub(super) fn least_max() -> CpuMax {
    CpuMax {
        quota_usec: Some(KERNEL_QUOTA_MIN_NS / NSEC_PER_USEC),
        period_usec: KERNEL_PERIOD_MAX_USEC,
        burst_usec: 0,
    }
}

/// Bandwidth of a cap: a quota over a short period, or over as many whole milliseconds as it takes
/// for the quota to be one that the kernel accepts. In whole milliseconds a cap in per mille is a
/// quota in whole microseconds: nothing is rounded. The burst is the core's depth, so that a task
/// does not lose the time that it did not use for a moment.
pub(super) fn cap_max(cap: Cap) -> CpuMax {
    let permille = u64::from(cap.permille.max(1));
    let period_ms = match permille {
        WIDE_CAP_PERMILLE.. => WIDE_CAP_PERIOD_MS,
        _ => CAP_PERIOD_MS.max(1000_u64.div_ceil(permille)),
    };
    CpuMax {
        quota_usec: Some(period_ms * permille),
        period_usec: period_ms * USEC_PER_MSEC,
        burst_usec: DEPTH_DEFAULT_NS / NSEC_PER_USEC,
    }
}

/// Cuts a child's bandwidth to its parent's rate on v1, which would refuse a higher one.
pub(super) fn fit_below(parent: &CpuMax, child: CpuMax, version: Version) -> CpuMax {
    let (Version::V1, Some(parent_usec), Some(child_usec)) =
        (version, parent.quota_usec, child.quota_usec)
    else {
        return child;
    };
    let most = u128::from(parent_usec) * u128::from(child.period_usec)
        / u128::from(parent.period_usec.max(1));
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    CpuMax {
        quota_usec: Some(child_usec.min(most)),
        ..child
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_become_quotas_that_the_kernel_takes() {
        for (cap, quota_usec, period_usec) in [
            ("20%", 2_000, 10_000),
            ("150%", 30_000, 20_000),
            ("10%", 1_000, 10_000),
            ("9%", 1_080, 12_000),
            ("0.1%", 1_000, 1_000_000),
        ] {
            let max = cap_max(cap.parse().unwrap());
            let found = (max.quota_usec, max.period_usec);
            assert_eq!(found, (Some(quota_usec), period_usec), "{cap}");
            assert_eq!(max.burst_usec, 1_000, "{cap}");
            assert!(Bandwidth::from(max).check().is_ok());
        }
    }

    #[test]
    fn v1_children_stay_within_their_parents_rate() {
        let parent = cap_max("10%".parse().unwrap());
        let child = Bandwidth::of("200ms/1s".parse().unwrap(), None).into();
        let fitted = fit_below(&parent, child, Version::V1);
        assert_eq!(fitted.quota_usec, Some(100_000));
        assert_eq!(fit_below(&parent, child, Version::V2), child);
    }
}
