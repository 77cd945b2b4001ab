//! Selects the mechanism that enforces each knob on this host, and states its loss.
//!
//! The plan is computed from a group's knobs and the host's capabilities; `doctor` and `--dry-run`
//! print it. No knob is silently dropped: a knob that cannot be enforced is an error, unless the
//! user passed `--best-effort`.

mod cgroup;
mod fidelity;
mod sched_ext;

pub use fidelity::Fidelity;

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::host::Capabilities;
use crate::knobs::{Burst, Headroom, Knob, Knobs};
use cgroup::{StockKnobs, exceeds_quota};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanItem {
    pub group: String,
    pub knob: Knob,
    pub value: String,
    pub mechanism: String,
    #[serde(flatten)]
    pub fidelity: Fidelity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub items: Vec<PlanItem>,
    has_burst: bool,
    /// Warnings to show before the plan is carried out.
    pub warnings: Vec<String>,
}

/// Headroom of the whole machine.
const PPM_ALL: u32 = 1_000_000;

impl Plan {
    /// Plans every knob of a group for a host with these capabilities. `is_scheduled`: the BPF
    /// scheduler enforces the knobs; else stock knobs do.
    ///
    /// # Errors
    /// Names the first knob that cannot be used.
    pub fn new(name: &str, knobs: &Knobs, host: &Capabilities, is_scheduled: bool) -> Result<Self> {
        knobs.check()?;
        let item = |(knob, value)| {
            let (mechanism, fidelity) = match is_scheduled {
                true => sched_ext::mechanism(knob, knobs, host),
                false => StockKnobs { host, knobs }.mechanism(knob),
            };
            PlanItem {
                group: name.to_owned(),
                knob,
                value,
                mechanism,
                fidelity,
            }
        };
        let disturbance = disturbance(knobs).filter(|_| is_scheduled);
        Ok(Self {
            items: knobs.items().into_iter().map(item).collect(),
            has_burst: host.has_burst,
            warnings: disturbance.into_iter().collect(),
        })
    }

    /// Checks that the plan may be carried out.
    ///
    /// # Errors
    /// Names the first knob that this host cannot enforce, unless `best_effort`.
    pub fn check(&self, best_effort: bool) -> Result<()> {
        for item in &self.items {
            if let (Fidelity::Impossible { reason }, false) = (&item.fidelity, best_effort) {
                return Err(EngineError::NotEnforceable {
                    knob: item.knob.name(),
                    value: item.value.clone(),
                    reason: reason.clone(),
                });
            }
        }
        Ok(())
    }

    /// Returns a group's knobs without those that this host cannot enforce; some of them are
    /// reduced instead of dropped.
    pub fn enforceable(&self, knobs: &Knobs) -> Knobs {
        let mut left = knobs.clone();
        let impossible = |item: &&PlanItem| matches!(item.fidelity, Fidelity::Impossible { .. });
        for item in self.items.iter().filter(impossible) {
            match item.knob {
                Knob::CpuLimit => left.cpu_limit = None,
                Knob::Tolerance => left.tolerance = None,
                Knob::PerTask => left.per_task = false,
                Knob::HostTuning => left.host_tuning = false,
                Knob::Headroom => left.headroom = Some(Headroom::Share(PPM_ALL)),
                Knob::Burst if !self.has_burst => left.burst = None,
                Knob::Burst => left.burst = burst_within_quota(knobs),
                _ => (),
            }
        }
        left
    }
}

/// Returns the burst, cut to the most that the stock kernel takes.
fn burst_within_quota(knobs: &Knobs) -> Option<Burst> {
    let quota_ns = knobs.quota?.quota_ns?;
    Some(Burst {
        burst_ns: knobs.burst?.burst_ns.min(quota_ns),
    })
}

/// Returns a warning that a burst above the quota may disturb other groups.
fn disturbance(knobs: &Knobs) -> Option<String> {
    let burst = knobs.burst.filter(|_| exceeds_quota(knobs))?;
    Some(format!(
        "burst {burst}: it exceeds the quota, so that the group may disturb others for up to \
         {burst} of CPU time at once"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_KNOB: &str = r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus",
        "burst": "10ms", "cap": "50%", "soft-cap": "10%", "half-life": "5s", "per-task": true,
        "headroom": "1cpus", "tolerance": "1ms/100ms", "cpu-limit": "80%", "host-tuning": true}"#;

    fn plan(json: &str, is_scheduled: bool) -> (Plan, Knobs) {
        let knobs: Knobs = serde_json::from_str(json).unwrap();
        let host = Capabilities::of_a_stock_kernel();
        let plan = Plan::new("g", &knobs, &host, is_scheduled).unwrap();
        (plan, knobs)
    }

    #[test]
    fn burst_above_quota_names_sched_ext_as_the_way() {
        let (plan, knobs) = plan(r#"{"quota": "100ms/100ms", "burst": "200ms"}"#, false);
        let message = plan.check(false).unwrap_err().to_string();
        assert!(
            message.contains("sched_ext") && message.starts_with("burst: "),
            "{message}"
        );
        assert!(plan.check(true).is_ok());
        assert_eq!(
            plan.enforceable(&knobs).burst,
            Some("100ms".parse().unwrap())
        );
    }

    #[test]
    fn a_batch_class_without_the_guard_says_what_a_service_loses() {
        let knobs: Knobs = serde_json::from_str(r#"{"class": "batch"}"#).unwrap();
        let names_the_guard = |may_have_guard| {
            let host = Capabilities {
                may_have_guard,
                ..Capabilities::of_a_stock_kernel()
            };
            let plan = Plan::new("g", &knobs, &host, false).unwrap();
            matches!(&plan.items[0].fidelity, Fidelity::Approximate { loss } if loss.contains("no guard"))
        };
        assert!(names_the_guard(false) && !names_the_guard(true));
    }

    #[test]
    fn a_tolerance_alone_takes_the_scheduler() {
        let (plan, _) = plan(r#"{"class": "batch", "tolerance": "0"}"#, false);
        let message = plan.check(false).unwrap_err().to_string();
        assert!(
            message.starts_with("tolerance: ") && message.contains("sched-ext"),
            "{message}"
        );
    }

    #[test]
    fn every_knob_is_in_the_plan() {
        let (plan, knobs) = plan(EVERY_KNOB, false);
        assert_eq!(plan.items.len(), 13);
        assert!(plan.check(false).is_err());
        assert_eq!(plan.enforceable(&knobs).cpu_limit, None);
    }

    #[test]
    fn every_knob_is_exact_under_the_scheduler() {
        let (plan, _) = plan(EVERY_KNOB, true);
        assert_eq!(plan.items.len(), 13);
        for item in &plan.items {
            assert_eq!(item.fidelity, Fidelity::Exact, "{:?}", item.knob);
            assert!(item.mechanism.starts_with("sched_ext: "), "{:?}", item.knob);
        }
        assert!(plan.warnings.is_empty());
    }

    #[test]
    fn the_scheduler_allows_a_burst_above_the_quota_with_a_warning() {
        let json = r#"{"class": "batch", "quota": "10ms/100ms", "burst": "200ms"}"#;
        let (plan, _) = plan(json, true);
        assert!(plan.check(false).is_ok());
        assert!(plan.warnings[0].contains("200ms"), "{:?}", plan.warnings);
    }

    #[test]
    fn more_headroom_than_cpus_is_impossible_under_the_scheduler_too() {
        let (plan, _) = plan(r#"{"class": "batch", "headroom": "9cpus"}"#, true);
        assert!(plan.check(false).is_err());
    }
}
