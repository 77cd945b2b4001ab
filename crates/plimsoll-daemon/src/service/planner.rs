//! What this host can do of what is asked.

use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::cgroup::check_held;
use plimsoll_engine::host::{Capabilities, Mode, SchedExt};
use plimsoll_engine::knobs::{Demand, Knobs};
use plimsoll_engine::plan::{Plan, is_scheduled};
use plimsoll_engine::policy_set::{GroupPolicy, PolicySet, Selector};
use plimsoll_engine::{EngineError, Result};

use super::wish::{self, Place, Wish};
use crate::state::Origin;

/// What the group is called in a plan that is only looked at.
const PLANNED: &str = "planned";

/// Plans groups for this host and the enforcer that was chosen.
#[derive(Debug)]
pub(super) struct Planner {
    host: Capabilities,
    scheduler: Option<SchedExt>,
}

/// The plan as it is answered, of the group of that name.
pub(super) fn shown(plan: &Plan, name: &str) -> serde_json::Value {
    let mut items = plan.items.clone();
    for item in &mut items {
        item.group = name.to_owned();
    }
    // It has string keys only: it always serialises.
    serde_json::to_value(items).unwrap_or_default()
}

/// A wish as far as this host can make it true.
pub(super) struct Planned {
    /// What is enforced.
    pub knobs: Knobs,
    /// By what.
    pub plan: Plan,
    /// What is lost of it, if that is more than the plan tells.
    pub loss: Option<String>,
}

impl Planner {
    pub fn new(hierarchy: &Arc<Hierarchy>, scheduler: Option<SchedExt>) -> Self {
        Self {
            host: Capabilities::of_this_host(hierarchy),
            scheduler,
        }
    }

    pub fn nr_cpus(&self) -> u32 {
        self.host.nr_cpus
    }

    pub fn mode(&self) -> Mode {
        self.scheduler
            .map(|scheduler| scheduler.mode)
            .unwrap_or_default()
    }

    /// The scheduler of groups whose asker has no choice.
    pub fn scheduler(&self) -> Option<SchedExt> {
        self.scheduler
    }

    /// Plans one group. `knobs`: those of the desired state, with what other groups demand.
    ///
    /// # Errors
    /// Names the first knob that cannot be used or enforced.
    pub fn plan(&self, wish: &Wish, knobs: &Knobs) -> Result<Planned> {
        wish.knobs.check()?;
        let (knobs, loss) = one_quota(wish, knobs);
        let wanted = PolicySet::new(vec![GroupPolicy {
            name: PLANNED.into(),
            selector: Selector::Processes,
            knobs: knobs.clone(),
            scheduler: wish.scheduler.map(|scheduler| scheduler.mode),
        }])?;
        let plan = match wish.scheduler {
            Some(scheduler) => Plan::with_sched_ext(&wanted, &self.host, scheduler),
            None => Plan::new(&wanted, &self.host),
        };
        let checked = plan.check(wish.best_effort);
        checked.map_err(|error| match wish.origin {
            Origin::CommandLine => error,
            Origin::Attributes | Origin::File => without_flag(error),
        })?;
        let knobs = plan.enforceable(PLANNED, &knobs);
        if wish.place == Place::Cgroup && !is_scheduler_s(wish, &knobs) {
            check_held(&knobs)?;
        }
        Ok(Planned { knobs, plan, loss })
    }

    /// Whether a wish can be made true by itself, whatever room others demand.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub fn check(&self, wish: &Wish) -> Result<()> {
        let knobs = wish::laid_down(wish, Demand::default(), self.nr_cpus());
        self.plan(wish, &knobs).map(drop)
    }
}

/// Whether the BPF scheduler schedules the group.
fn is_scheduler_s(wish: &Wish, knobs: &Knobs) -> bool {
    wish.scheduler
        .is_some_and(|scheduler| is_scheduled(knobs, scheduler.mode))
}

/// A foreign cgroup has one quota: the limit of the group stays, and the headroom that another
/// group demands of it does not.
fn one_quota(wish: &Wish, knobs: &Knobs) -> (Knobs, Option<String>) {
    let limited = knobs.quota.is_some() || knobs.cap.is_some();
    let (Some(headroom), true) = (knobs.headroom, limited) else {
        return (knobs.clone(), None);
    };
    if wish.place != Place::Cgroup || is_scheduler_s(wish, knobs) {
        return (knobs.clone(), None);
    }
    let left = Knobs {
        headroom: None,
        tolerance: None,
        ..knobs.clone()
    };
    let loss = format!(
        "headroom {headroom} is not kept from it: a cgroup has one quota, and that is its \
         limit's; a sched_ext scheduler can do both"
    );
    (left, Some(loss))
}

/// In a file there is no flag that could be given.
fn without_flag(error: EngineError) -> EngineError {
    match error {
        EngineError::NotEnforceable {
            knob,
            value,
            reason,
        } => EngineError::NotEnforceable {
            knob,
            value,
            reason: reason.replace("; --best-effort goes on without", ""),
        },
        other => other,
    }
}
