//! Which mechanism of this host enforces each knob, and with what loss.
//!
//! Made from a policy set and what the host can do; `doctor` and `--dry-run`
//! print it. Nothing is silently dropped: what cannot be enforced is an
//! error, unless the user said `--best-effort`.

use serde::Serialize;

use crate::error::{EngineError, Result};
use crate::host::Capabilities;
use crate::knobs::{Burst, Class, Headroom, Knobs};
use crate::policy_set::PolicySet;

/// How well a knob is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
}

/// The whole machine.
const PPM_ALL: u32 = 1_000_000;
const SCHED_EXT_ONLY: &str = "only a sched_ext scheduler can (Linux 6.18 and later)";

impl Plan {
    /// Plans every knob of `wanted` on a host that can do what `host` says.
    pub fn new(wanted: &PolicySet, host: &Capabilities) -> Self {
        let plan_group = |group: &crate::policy_set::GroupPolicy| {
            let planner = Planner {
                host,
                knobs: &group.knobs,
                group: &group.name,
            };
            planner.items()
        };
        Self {
            items: wanted.groups().iter().flat_map(plan_group).collect(),
            has_burst: host.has_burst,
        }
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

/// Plans one group.
struct Planner<'a> {
    host: &'a Capabilities,
    knobs: &'a Knobs,
    group: &'a str,
}

fn approximate(loss: impl Into<String>) -> Fidelity {
    Fidelity::Approximate { loss: loss.into() }
}

fn impossible(reason: impl Into<String>) -> Fidelity {
    Fidelity::Impossible {
        reason: reason.into(),
    }
}

impl Planner<'_> {
    fn items(&self) -> Vec<PlanItem> {
        let knobs = self.knobs;
        let per_task = knobs.per_task;
        [
            knobs
                .class
                .map(|v| self.item("class", v.to_string(), self.class(v))),
            knobs
                .nice
                .map(|v| self.item("nice", v.to_string(), self.nice())),
            knobs
                .weight
                .map(|v| self.item("weight", v.to_string(), self.weight())),
            knobs
                .quota
                .map(|v| self.item("quota", v.to_string(), self.quota())),
            knobs
                .burst
                .map(|v| self.item("burst", v.to_string(), self.burst(v))),
            knobs
                .cap
                .map(|v| self.item("cap", v.to_string(), self.cap())),
            knobs
                .soft_cap
                .map(|v| self.item("soft-cap", v.to_string(), self.soft_cap())),
            per_task.then(|| self.item("per-task", "true".into(), self.per_task())),
            knobs
                .headroom
                .map(|v| self.item("headroom", v.to_string(), self.headroom(v))),
            knobs
                .tolerance
                .map(|v| self.item("tolerance", v.to_string(), self.tolerance())),
            knobs
                .cpu_limit
                .map(|v| self.item("cpu-limit", v.to_string(), self.cpu_limit())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn item(&self, knob: &'static str, value: String, how: (String, Fidelity)) -> PlanItem {
        let (mechanism, fidelity) = how;
        PlanItem {
            group: self.group.into(),
            knob,
            value,
            mechanism,
            fidelity,
        }
    }

    /// How a group is put below all others, and what that lacks.
    fn background(&self) -> (String, &'static str) {
        if self.host.has_idle {
            (
                "cpu.idle".into(),
                "waits are not counted, load is not balanced by them",
            )
        } else {
            let file = self.host.weight_file();
            (
                format!("lowest {file}"),
                "it still gets about 1% of a busy CPU; cpu.idle takes Linux 5.15",
            )
        }
    }

    fn class(&self, class: Class) -> (String, Fidelity) {
        if class == Class::Normal {
            return ("the fair class".into(), Fidelity::Exact);
        }
        let (mechanism, loss) = self.background();
        let place = if self.host.is_top {
            ""
        } else {
            "; below the other work of this subtree only, not of the whole machine"
        };
        (mechanism, approximate(format!("{loss}{place}")))
    }

    fn nice(&self) -> (String, Fidelity) {
        ("setpriority".into(), Fidelity::Exact)
    }

    fn weight(&self) -> (String, Fidelity) {
        (self.host.weight_file().into(), Fidelity::Exact)
    }

    fn quota(&self) -> (String, Fidelity) {
        (self.host.quota_file().into(), Fidelity::Exact)
    }

    fn burst(&self, burst: Burst) -> (String, Fidelity) {
        let file = self.host.burst_file();
        if !self.host.has_burst && burst.burst_ns > 0 {
            return (
                file.into(),
                impossible("the kernel has no burst (Linux 5.14 and later)"),
            );
        }
        let quota_ns = self.knobs.quota.and_then(|quota| quota.quota_ns);
        match quota_ns {
            Some(quota_ns) if burst.burst_ns > quota_ns => {
                let reason =
                    format!("the stock kernel refuses a burst above the quota; {SCHED_EXT_ONLY}");
                (file.into(), impossible(reason))
            }
            _ => (file.into(), Fidelity::Exact),
        }
    }

    fn cap(&self) -> (String, Fidelity) {
        let loss = "overruns by up to a tick on each CPU, paid back in the next period";
        (
            format!("{}, short period", self.host.quota_file()),
            approximate(loss),
        )
    }

    fn per_task(&self) -> (String, Fidelity) {
        let loss = "a new task shares its parent's cap for up to 10ms";
        ("a leaf cgroup for each task".into(), approximate(loss))
    }

    fn soft_cap(&self) -> (String, Fidelity) {
        let (mechanism, _) = self.background();
        let scope = if self.knobs.per_task {
            "; a task goes behind the others of its group only"
        } else if !self.host.is_top {
            "; behind the other work of this subtree only"
        } else {
            ""
        };
        let loss = format!("switched every 50ms by usage rate{scope}");
        (format!("{mechanism}, switched"), approximate(loss))
    }

    fn headroom(&self, headroom: Headroom) -> (String, Fidelity) {
        let mechanism = format!("{}, rewritten every 10ms", self.host.quota_file());
        let nr_cpus = self.host.nr_cpus;
        let loss = match headroom {
            Headroom::Cpus(cpus) if cpus > nr_cpus => {
                return (mechanism, impossible(format!("there are {nr_cpus} CPUs")));
            }
            Headroom::Share(_) => "reacts in 10 to 30ms".to_owned(),
            Headroom::Cpus(cpus) => {
                format!("kept as {cpus} of {nr_cpus} CPUs on average, not at every instant")
            }
        };
        (mechanism, approximate(loss))
    }

    fn tolerance(&self) -> (String, Fidelity) {
        (
            "part of headroom".into(),
            approximate("given in pieces of at least 1ms"),
        )
    }

    fn cpu_limit(&self) -> (String, Fidelity) {
        ("none".into(), impossible(SCHED_EXT_ONLY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_set::{GroupPolicy, Selector};

    fn plan(json: &str) -> (Plan, Knobs) {
        let knobs: Knobs = serde_json::from_str(json).unwrap();
        let group = GroupPolicy {
            name: "g".into(),
            selector: Selector::Command,
            knobs: knobs.clone(),
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
    fn every_knob_is_in_the_plan() {
        let (plan, knobs) = plan(
            r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus", "burst": "10ms",
                "cap": "50%", "soft-cap": "10%", "per-task": true, "headroom": "30%",
                "tolerance": "1ms/100ms", "cpu-limit": "80%"}"#,
        );
        assert_eq!(plan.items.len(), 11);
        assert!(plan.check(false).is_err());
        assert_eq!(plan.enforceable("g", &knobs).cpu_limit, None);
    }
}
