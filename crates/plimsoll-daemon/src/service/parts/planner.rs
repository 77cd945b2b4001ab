//! Plans of groups for this host and its enforcer.

use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::Result;
use plimsoll_engine::cgroup::{cannot_yield, check_one_cgroup, yields};
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::host::{Capabilities, nr_cpus_online};
use plimsoll_engine::knobs::{HeadroomDemand, Knobs};
use plimsoll_engine::plan::Plan;

use super::super::desired::Desired;
use crate::state::KnobOrigin;

/// Planner for this host and the enforcer that was chosen.
#[derive(Debug)]
pub(in crate::service) struct Planner {
    host: Capabilities,
    /// The scheduler enforces groups that ask for it, if it is one.
    kind: EnforcerKind,
    is_scheduled: bool,
}

/// Desired state, as far as this host can enforce it.
pub(in crate::service) struct Planned {
    /// The group's own knobs that are enforced.
    pub knobs: Knobs,
    /// Mechanism and loss of each knob.
    pub plan: Plan,
    /// Loss that the plan does not name.
    pub loss: Option<String>,
}

impl Planner {
    pub fn new(hierarchy: &Arc<Hierarchy>, kind: EnforcerKind, is_scheduled: bool) -> Self {
        Self {
            host: Capabilities::of_this_host(hierarchy),
            kind,
            is_scheduled,
        }
    }

    /// Enforcer of groups whose client has no choice.
    pub fn kind(&self) -> EnforcerKind {
        match self.is_scheduled {
            true => EnforcerKind::SchedExt,
            false => EnforcerKind::Cgroup,
        }
    }

    pub fn nr_cpus(&self) -> u32 {
        nr_cpus_online()
    }

    /// Whether the scheduler enforces groups whose client has no choice.
    pub fn is_scheduled(&self) -> bool {
        self.is_scheduled
    }

    /// Whether the scheduler enforces a group whose client has chosen so, or not: an earlier owner,
    /// which had the scheduler, may have accepted the choice.
    pub fn schedules(&self, is_wanted: bool) -> bool {
        self.is_scheduled || (self.kind == EnforcerKind::SchedExt && is_wanted)
    }

    pub fn may_tune_host(&self) -> bool {
        self.host.may_tune_host
    }

    /// Plans one group, beside the demand of all groups and of this one.
    ///
    /// # Errors
    /// Names the first knob that cannot be used or enforced.
    pub fn plan(&self, desired: &Desired, demand: HeadroomDemand) -> Result<Planned> {
        desired.knobs().check()?;
        let in_force = self.in_force(desired, desired.knobs(), demand);
        let host = Capabilities {
            nr_cpus: self.nr_cpus(),
            ..self.host.clone()
        };
        let plan = Plan::new(
            &desired.policy.name,
            &in_force,
            &host,
            desired.policy.is_scheduled,
        )?;
        let checked = plan.check(desired.best_effort);
        checked.map_err(|error| match desired.origin {
            KnobOrigin::CommandLine => error.with_flag(),
            KnobOrigin::File => error,
        })?;
        let knobs = plan.enforceable(desired.knobs());
        if desired.is_foreign() && !desired.policy.is_scheduled {
            check_one_cgroup(&knobs)?;
        }
        let loss = self.cannot_yield(desired).and_then(|why| {
            let headroom = demand.in_force(self.nr_cpus())?;
            Some(format!("headroom {headroom} is not kept from it: {why}"))
        });
        Ok(Planned { knobs, plan, loss })
    }

    /// Checks that a group can be enforced by itself, without the demand of others.
    ///
    /// # Errors
    /// Names the first knob that cannot be used or enforced.
    pub fn check(&self, desired: &Desired) -> Result<()> {
        let own = [desired.knobs()].into_iter().collect();
        self.plan(desired, own).map(drop)
    }

    /// Returns the knobs of a group with the headroom that the machine demands of it: a batch group
    /// yields to the headroom of all groups. The headroom of a normal group limits others.
    pub fn in_force(&self, desired: &Desired, knobs: &Knobs, demand: HeadroomDemand) -> Knobs {
        let mut in_force = knobs.clone();
        let yields = desired.is_batch() && self.cannot_yield(desired).is_none();
        if yields {
            demand.show_on(&mut in_force, self.nr_cpus());
        } else if !desired.is_batch() || demand.has_headroom() {
            // Without headroom the plan refuses a tolerance that the kernel cannot have.
            in_force.headroom = None;
            in_force.tolerance = None;
        }
        in_force
    }

    /// Whether a group yields to headroom by the kernel's files.
    pub fn yields(&self, desired: &Desired) -> bool {
        let is_foreign = desired.is_foreign();
        yields(
            desired.knobs(),
            desired.policy.is_scheduled,
            is_foreign,
            self.host.cgroup,
        )
    }

    /// Returns the reason why a batch group does not yield to the demanded headroom, which keeps no
    /// group from running. The plan refuses a headroom of its own that the kernel could not have.
    fn cannot_yield(&self, desired: &Desired) -> Option<&'static str> {
        let is_foreign = desired.is_foreign();
        let is_own = !is_foreign && desired.knobs().headroom.is_some();
        if !desired.is_batch() || desired.policy.is_scheduled || is_own {
            return None;
        }
        cannot_yield(desired.knobs(), is_foreign, self.host.cgroup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_group_yields_to_all_headroom_and_a_normal_one_to_none() {
        let planner = Planner {
            host: Capabilities::of_a_stock_kernel(),
            kind: EnforcerKind::Cgroup,
            is_scheduled: false,
        };
        // As an owner that had the scheduler may have accepted it.
        assert!(!planner.schedules(true));
        let knobs = |json: &str| -> Knobs { serde_json::from_str(json).unwrap() };
        let demanding = knobs(r#"{"headroom": "20%"}"#);
        let desired = |json: &str| Desired::of_cgroup("g", json);
        for (json, in_force) in [
            (r#"{"class": "batch"}"#, Some("20%")),
            (r#"{"class": "batch", "headroom": "30%"}"#, Some("30%")),
            (r#"{"class": "batch", "quota": "1cpus"}"#, None),
            (
                r#"{"class": "batch", "quota": "1cpus", "headroom": "30%"}"#,
                None,
            ),
            (r#"{"headroom": "30%"}"#, None),
        ] {
            let desired = desired(json);
            let demand = [&demanding, desired.knobs()].into_iter().collect();
            let planned = planner.plan(&desired, demand).unwrap();
            assert_eq!(&planned.knobs, desired.knobs(), "applied: {json}");
            let shown = planner.in_force(&desired, &planned.knobs, demand).headroom;
            let expected = in_force.map(|text| text.parse().unwrap());
            assert_eq!(shown, expected, "{json}");
            assert_eq!(planned.loss.is_some(), json.contains("quota"), "{json}");
            let own = [desired.knobs()].into_iter().collect();
            let alone = planner.plan(&desired, own).unwrap();
            let is_lost = json.contains("quota") && json.contains("headroom");
            assert_eq!(alone.loss.is_some(), is_lost, "{json}");
        }
        let tolerant = desired(r#"{"class": "batch", "quota": "1cpus", "tolerance": "0"}"#);
        assert!(planner.plan(&tolerant, HeadroomDemand::default()).is_err());
    }
}
