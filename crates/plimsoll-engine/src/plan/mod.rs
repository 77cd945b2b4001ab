//! Which mechanism of this host enforces each knob, and with what loss.
//!
//! Made from a policy set and what the host can do; `doctor` and `--dry-run`
//! print it. Nothing is silently dropped: what cannot be enforced is an
//! error, unless the user said `--best-effort`.

mod cgroup;
mod sched_ext;

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::host::{Capabilities, Mode, SchedExt};
use crate::knobs::{Burst, Class, Headroom, Knobs};
use crate::policy_set::{GroupPolicy, PolicySet};
use cgroup::StockKnobs;
use sched_ext::Scheduler;

/// How well a knob is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fidelity")]
pub enum Fidelity {
    /// As specified.
    Exact,
    /// In substance, with a loss that is told.
    Approximate {
        /// What is lost.
        loss: String,
    },
    /// Not on this host.
    Impossible {
        /// Why, and what could.
        reason: String,
    },
}

/// One knob of one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanItem {
    /// The group's name.
    pub group: String,
    /// The knob's name.
    pub knob: &'static str,
    /// Its value as text.
    pub value: String,
    /// What enforces it.
    pub mechanism: String,
    /// How well.
    #[serde(flatten)]
    pub fidelity: Fidelity,
}

/// What will be done for a policy set on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Every knob of every group.
    pub items: Vec<PlanItem>,
    #[serde(skip)]
    has_burst: bool,
    /// What people should know before it is carried out.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// The whole machine.
const PPM_ALL: u32 = 1_000_000;

/// Whether Plimsoll's BPF scheduler schedules a group, once it is loaded. The
/// others stay with the stock kernel's knobs.
pub fn is_scheduled(knobs: &Knobs, mode: Mode) -> bool {
    mode == Mode::All || knobs.class == Some(Class::Batch)
}

/// Whether a group asks for what the stock kernel's knobs cannot do, or only
/// in another sense than asked, and a BPF scheduler can.
pub fn needs_sched_ext(knobs: &Knobs, mode: Mode) -> bool {
    let only_there = exceeds_quota(knobs)
        || knobs.cpu_limit.is_some()
        || matches!(knobs.headroom, Some(Headroom::Cpus(_)))
        || (knobs.tolerance.is_some() && knobs.headroom.is_none());
    mode == Mode::All || (is_scheduled(knobs, mode) && only_there)
}

/// A burst above the quota, which the stock kernel refuses.
fn exceeds_quota(knobs: &Knobs) -> bool {
    let quota_ns = knobs.quota.and_then(|quota| quota.quota_ns);
    matches!((knobs.burst, quota_ns), (Some(burst), Some(quota_ns)) if burst.burst_ns > quota_ns)
}

impl Plan {
    /// Plans every knob of `wanted` for the stock knobs of a host that can do
    /// what `host` says.
    pub fn new(wanted: &PolicySet, host: &Capabilities) -> Self {
        Self::with(wanted, host, None)
    }

    /// The same with Plimsoll's BPF scheduler for the groups that it schedules.
    pub fn with_sched_ext(wanted: &PolicySet, host: &Capabilities, scheduler: SchedExt) -> Self {
        Self::with(wanted, host, Some(scheduler))
    }

    fn with(wanted: &PolicySet, host: &Capabilities, scheduler: Option<SchedExt>) -> Self {
        let mut plan = Self {
            items: Vec::new(),
            has_burst: host.has_burst,
            warnings: Vec::new(),
        };
        for group in wanted.groups() {
            let knobs = &group.knobs;
            match scheduler.filter(|scheduler| is_scheduled(knobs, scheduler.mode)) {
                Some(scheduler) => {
                    let mechanisms = Scheduler { host, scheduler };
                    plan.items.extend(items(group, &mechanisms));
                    plan.warnings.extend(disturbance(knobs));
                }
                None => plan.items.extend(items(group, &StockKnobs { host, knobs })),
            }
        }
        plan
    }

    /// Whether the plan may be carried out.
    ///
    /// # Errors
    /// Names the first knob that this host cannot enforce, unless
    /// `best_effort`.
    pub fn check(&self, best_effort: bool) -> Result<()> {
        for item in &self.items {
            if let (Fidelity::Impossible { reason }, false) = (&item.fidelity, best_effort) {
                return Err(EngineError::NotEnforceable {
                    knob: item.knob,
                    value: item.value.clone(),
                    reason: format!("{reason}; --best-effort goes on without"),
                });
            }
        }
        Ok(())
    }

    /// What is left of a group's knobs once those are dropped or cut that
    /// this host cannot enforce.
    pub fn enforceable(&self, group: &str, knobs: &Knobs) -> Knobs {
        let mut left = knobs.clone();
        let impossible = |item: &&PlanItem| {
            item.group == group && matches!(item.fidelity, Fidelity::Impossible { .. })
        };
        for item in self.items.iter().filter(impossible) {
            match item.knob {
                "cpu-limit" => left.cpu_limit = None,
                "tolerance" => left.tolerance = None,
                "headroom" => left.headroom = Some(Headroom::Share(PPM_ALL)),
                "burst" if !self.has_burst => left.burst = None,
                "burst" => left.burst = burst_within_quota(knobs),
                _ => (),
            }
        }
        left
    }
}

/// The most burst that the stock kernel takes.
fn burst_within_quota(knobs: &Knobs) -> Option<Burst> {
    let quota_ns = knobs.quota?.quota_ns?;
    Some(Burst {
        burst_ns: knobs.burst?.burst_ns.min(quota_ns),
    })
}

/// What a burst above the quota may do to others.
fn disturbance(knobs: &Knobs) -> Option<String> {
    let burst = knobs.burst.filter(|_| exceeds_quota(knobs))?;
    Some(format!(
        "burst {burst}: it exceeds the quota, so that the group may disturb others for up to \
         {burst} of CPU time at once"
    ))
}

/// What enforces a knob, and how well.
type How = (String, Fidelity);

/// The means of one interface of the kernel.
trait Mechanisms {
    fn class(&self, class: Class) -> How;
    fn nice(&self) -> How;
    fn weight(&self) -> How;
    fn quota(&self) -> How;
    fn burst(&self, burst: Burst) -> How;
    fn cap(&self) -> How;
    fn soft_cap(&self) -> How;
    fn half_life(&self) -> How;
    fn per_task(&self) -> How;
    fn headroom(&self, headroom: Headroom) -> How;
    fn tolerance(&self) -> How;
    fn cpu_limit(&self) -> How;
}

fn approximate(loss: impl Into<String>) -> Fidelity {
    Fidelity::Approximate { loss: loss.into() }
}

fn impossible(reason: impl Into<String>) -> Fidelity {
    Fidelity::Impossible {
        reason: reason.into(),
    }
}

/// Plans one group.
fn items(group: &GroupPolicy, means: &dyn Mechanisms) -> Vec<PlanItem> {
    let knobs = &group.knobs;
    let mut items = Vec::new();
    let mut add = |knob, value: Option<String>, how: &dyn Fn() -> How| {
        let Some(value) = value else { return };
        let (mechanism, fidelity) = how();
        items.push(PlanItem {
            group: group.name.clone(),
            knob,
            value,
            mechanism,
            fidelity,
        });
    };
    macro_rules! knob {
        ($name:literal, $field:ident, $how:expr) => {
            if let Some(value) = knobs.$field {
                add($name, Some(value.to_string()), &|| $how(value));
            }
        };
    }
    knob!("class", class, |v| means.class(v));
    knob!("nice", nice, |_| means.nice());
    knob!("weight", weight, |_| means.weight());
    knob!("quota", quota, |_| means.quota());
    knob!("burst", burst, |v| means.burst(v));
    knob!("cap", cap, |_| means.cap());
    knob!("soft-cap", soft_cap, |_| means.soft_cap());
    knob!("half-life", half_life, |_| means.half_life());
    add("per-task", knobs.per_task.then(|| "true".into()), &|| {
        means.per_task()
    });
    knob!("headroom", headroom, |v| means.headroom(v));
    knob!("tolerance", tolerance, |_| means.tolerance());
    knob!("cpu-limit", cpu_limit, |_| means.cpu_limit());
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_set::Selector;

    fn plan(json: &str) -> (Plan, Knobs) {
        let knobs: Knobs = serde_json::from_str(json).unwrap();
        let group = GroupPolicy {
            name: "g".into(),
            selector: Selector::Command,
            knobs: knobs.clone(),
            scheduler: None,
        };
        let set = PolicySet::new(vec![group]).unwrap();
        (Plan::new(&set, &Capabilities::of_a_stock_kernel()), knobs)
    }

    #[test]
    fn burst_above_quota_names_sched_ext_as_the_way() {
        let (plan, knobs) = plan(r#"{"quota": "100ms/100ms", "burst": "200ms"}"#);
        let message = plan.check(false).unwrap_err().to_string();
        assert!(
            message.contains("sched_ext") && message.starts_with("burst: "),
            "{message}"
        );
        assert!(plan.check(true).is_ok());
        assert_eq!(
            plan.enforceable("g", &knobs).burst,
            Some("100ms".parse().unwrap())
        );
    }

    #[test]
    fn the_scheduler_is_needed_for_what_only_it_can_do() {
        let needs = |json: &str, mode| {
            let knobs: Knobs = serde_json::from_str(json).unwrap();
            needs_sched_ext(&knobs, mode)
        };
        for json in [
            r#"{"class": "batch", "cpu-limit": "80%"}"#,
            r#"{"class": "batch", "quota": "10ms/100ms", "burst": "20ms"}"#,
            r#"{"class": "batch", "headroom": "1cpus"}"#,
            r#"{"class": "batch", "tolerance": "0"}"#,
        ] {
            assert!(needs(json, Mode::Partial), "{json}");
        }
        for json in [
            r#"{"class": "batch", "headroom": "30%"}"#,
            r#"{"quota": "10ms/100ms", "burst": "20ms"}"#,
            r#"{"headroom": "1cpus"}"#,
        ] {
            assert!(!needs(json, Mode::Partial), "{json}");
            assert!(needs(json, Mode::All), "{json}");
        }
    }

    #[test]
    fn a_tolerance_alone_takes_the_scheduler() {
        let (plan, _) = plan(r#"{"class": "batch", "tolerance": "0"}"#);
        let message = plan.check(false).unwrap_err().to_string();
        assert!(
            message.starts_with("tolerance: ") && message.contains("sched-ext"),
            "{message}"
        );
    }

    #[test]
    fn every_knob_is_in_the_plan() {
        let (plan, knobs) = plan(
            r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus", "burst": "10ms",
                "cap": "50%", "soft-cap": "10%", "half-life": "5s", "per-task": true,
                "headroom": "30%", "tolerance": "1ms/100ms", "cpu-limit": "80%"}"#,
        );
        assert_eq!(plan.items.len(), 12);
        assert!(plan.check(false).is_err());
        assert_eq!(plan.enforceable("g", &knobs).cpu_limit, None);
    }
}
