//! A bursty service under a quota, without and with burst.

use super::PLIMSOLL;
use super::load::{latencies, plimsoll};
use crate::cell::Cell;
use crate::error::Result;
use crate::policy::Policy;
use crate::results::Figures;
use crate::workload::Allowance;

/// Bursts of 1.5 quotas, half a quota on average: the source's experiment on two CPUs.
const LOAD: &str = "load service --burst-size 24 --burst-every 310ms --service const:1ms \
                    --duration 12s --warmup 1s --deadline 50ms --seed 1 --json";

pub fn measure(cell: &Cell, allowance: Allowance) -> Result<Figures> {
    let enforcer = match cell.policy {
        Policy::SchedExt(_) => "sched-ext",
        _ => "cgroup",
    };
    let knobs = match allowance {
        Allowance::All => return latencies(&plimsoll(None, LOAD)?),
        Allowance::Quota => "--quota 16ms/100ms",
        Allowance::QuotaAndBurst => "--quota 16ms/100ms --burst 16ms",
    };
    let words = format!("run --enforcer {enforcer} {knobs} -- {PLIMSOLL} {LOAD}");
    latencies(&plimsoll(None, &words)?)
}
