//! Plans of groups for this host and its enforcer.

use std::sync::Arc;

use plimsoll_cgroupfs::{Hierarchy, Version};
use plimsoll_engine::Result;
use plimsoll_engine::cgroup::check_one_cgroup;
use plimsoll_engine::host::{Capabilities, nr_cpus_online};
use plimsoll_engine::knobs::{Demand, Knobs};
use plimsoll_engine::plan::Plan;

use super::super::desired::{self, Desired, GroupKind};
use crate::state::Origin;

/// Name of the group in a plan.
const PLANNED: &str = "planned";

/// Planner for this host and the enforcer that was chosen.
#[derive(Debug)]
pub(super) struct Planner {
    host: Capabilities,
    is_scheduled: bool,
}

/// The plan as JSON, for the group of that name.
pub(in crate::service) fn shown(plan: &Plan, name: &str) -> serde_json::Value {
    let mut items = plan.items.clone();
    for item in &mut items {
        item.group = name.to_owned();
    }
    // It has string keys only: it always serialises.
    serde_json::to_value(items).unwrap_or_default()
}

/// Desired state, as far as this host can enforce it.
pub(in crate::service) struct Planned {
    /// Knobs that are enforced.
    pub knobs: Knobs,
    /// Mechanism and loss of each knob.
    pub plan: Plan,
    /// Loss that the plan does not name.
    pub loss: Option<String>,
}

impl Planner {
    pub fn new(hierarchy: &Arc<Hierarchy>, is_scheduled: bool) -> Self {
        Self {
            host: Capabilities::of_this_host(hierarchy),
            is_scheduled,
        }
    }

    /// Those online now.
    pub fn nr_cpus(&self) -> u32 {
        nr_cpus_online()
    }

    /// Whether the scheduler enforces groups whose client has no choice.
    pub fn is_scheduled(&self) -> bool {
        self.is_scheduled
    }

    pub fn may_tune_host(&self) -> bool {
        self.host.may_tune_host
    }

    /// Plans one group, beside the demand of all groups.
    ///
    /// # Errors
    /// Names the first knob that cannot be used or enforced.
    pub fn plan(&self, desired: &Desired, demand: Demand) -> Result<Planned> {
        desired.knobs.check()?;
        let knobs = desired::effective_knobs(desired, demand, self.nr_cpus());
        let (knobs, loss) = one_quota(desired, &knobs, self.host.cgroup);
        let plan = Plan::new(PLANNED, &knobs, &self.host, desired.is_scheduled)?;
        let checked = plan.check(desired.best_effort);
        checked.map_err(|error| match desired.origin {
            Origin::CommandLine => error.with_flag(),
            Origin::File => error,
        })?;
        let knobs = plan.enforceable(PLANNED, &knobs);
        if desired.kind == GroupKind::Foreign && !desired.is_scheduled {
            check_one_cgroup(&knobs)?;
        }
        Ok(Planned { knobs, plan, loss })
    }
}

/// Drops headroom beside a limit with which it does not go: a foreign cgroup has one quota, and the
/// group's own limit takes it; on v1 the limits of tasks are not inside of one that changes. What
/// others demand keeps no group from running, so only a headroom of the group's own is refused.
fn one_quota(desired: &Desired, knobs: &Knobs, version: Version) -> (Knobs, Option<String>) {
    let limited = knobs.quota.is_some() || knobs.cap.is_some();
    let is_foreign = desired.kind == GroupKind::Foreign && limited;
    let of_others = desired.knobs.headroom.is_none();
    let per_task = version == Version::V1 && knobs.per_task && of_others;
    let Some(headroom) = knobs.headroom.filter(|_| is_foreign || per_task) else {
        return (knobs.clone(), None);
    };
    if desired.is_scheduled {
        return (knobs.clone(), None);
    }
    let left = Knobs {
        headroom: None,
        tolerance: None,
        ..knobs.clone()
    };
    let why = match is_foreign {
        true => {
            "a cgroup has one quota, and that is its limit's; a sched_ext scheduler can do both"
        }
        false => "on cgroup v1 its tasks' limits cannot be inside of one that changes",
    };
    (
        left,
        Some(format!("headroom {headroom} is not kept from it: {why}")),
    )
}
