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

    fn is_scheduled(&self, knobs: &Knobs) -> bool {
        self.scheduler
            .is_some_and(|scheduler| is_scheduled(knobs, scheduler.mode))
    }

    /// Plans one group.
    ///
    /// # Errors
    /// Names the first knob that cannot be used or enforced.
    pub fn plan(&self, place: &Place, knobs: &Knobs, best_effort: bool) -> Result<Planned> {
        let (knobs, loss) = self.one_quota(place, knobs);
        let wanted = PolicySet::new(vec![GroupPolicy {
            name: PLANNED.into(),
            selector: Selector::Processes,
            knobs: knobs.clone(),
        }])?;
        let plan = match self.scheduler {
            Some(scheduler) => Plan::with_sched_ext(&wanted, &self.host, scheduler),
            None => Plan::new(&wanted, &self.host),
        };
        plan.check(best_effort).map_err(without_flag)?;
        let knobs = plan.enforceable(PLANNED, &knobs);
        if *place == Place::Cgroup && !self.is_scheduled(&knobs) {
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
        self.plan(&wish.place, &knobs, wish.best_effort).map(drop)
    }

    /// A cgroup of somebody else's has one quota: what limits the group is
    /// kept, and the headroom that another group asks of it is not.
    fn one_quota(&self, place: &Place, knobs: &Knobs) -> (Knobs, Option<String>) {
        let limited = knobs.quota.is_some() || knobs.cap.is_some();
        let (Some(headroom), true) = (knobs.headroom, limited) else {
            return (knobs.clone(), None);
        };
        if *place != Place::Cgroup || self.is_scheduled(knobs) {
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
