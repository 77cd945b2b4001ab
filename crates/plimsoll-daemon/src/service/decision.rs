//! Decision of reconcile about one group, from its desired and its applied state alone.

use plimsoll_engine::action::Action;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::{EngineError, Result};

use super::desired;
use super::parts::{Entry, Planned};

#[derive(Debug)]
pub(super) enum Decision {
    /// The enforcer is to make this change.
    Act {
        action: Action,
        /// Loss of the desired state.
        loss: Option<String>,
    },
    /// The desired state is in force.
    InForce { knobs: Knobs, loss: Option<String> },
    /// The desired state cannot be enforced; the applied one stays.
    Refuse(EngineError),
}

/// Decides about the group `name`. `planned`: the plan of its desired state; `None`: no state is
/// desired.
pub(super) fn decide(
    name: &str,
    entry: &Entry,
    planned: Option<Result<Planned>>,
    burst_enabled: bool,
) -> Decision {
    let (Some(desired), Some(planned)) = (&entry.desired, planned) else {
        return Decision::Act {
            action: Action::Remove(name.to_owned()),
            loss: None,
        };
    };
    let Planned { knobs, loss, .. } = match planned {
        Ok(planned) => planned,
        Err(error) => return Decision::Refuse(error),
    };
    let knobs = desired::with_burst(knobs, burst_enabled);
    if entry.applied.as_ref() == Some(&knobs) && !entry.is_doubtful {
        return Decision::InForce { knobs, loss };
    }
    let action = Action::Put(desired.policy(name, knobs));
    Decision::Act { action, loss }
}

#[cfg(test)]
mod tests {
    use plimsoll_engine::host::Capabilities;
    use plimsoll_engine::plan::Plan;

    use super::super::desired::Desired;
    use super::super::parts::GroupTable;
    use super::*;

    fn knobs(json: &str) -> Knobs {
        serde_json::from_str(json).unwrap()
    }

    fn table(json: &str) -> GroupTable {
        let mut table = GroupTable::default();
        let desired = Desired::of_cgroup("g", json);
        table.set_desired("/g", Some(desired));
        table
    }

    /// The knobs that the enforcer is to put into force; `None`: it is to do nothing.
    fn put(table: &GroupTable, burst_enabled: bool) -> Option<Knobs> {
        let entry = table.get("/g").unwrap();
        let planned = entry.desired.as_ref().map(|desired| {
            let knobs = desired.knobs.clone();
            let host = Capabilities::of_a_stock_kernel();
            let plan = Plan::new("g", &knobs, &host, false)?;
            Ok(Planned {
                knobs,
                plan,
                loss: None,
            })
        });
        match decide("/g", entry, planned, burst_enabled) {
            Decision::Act {
                action: Action::Put(group),
                ..
            } => Some(group.knobs),
            Decision::InForce { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_group_is_put_into_force_once_and_again_when_in_doubt() {
        let mut table = table(r#"{"quota": "1cpus", "burst": "10ms"}"#);
        let with_burst = put(&table, true).unwrap();
        table.applied("/g", with_burst, None);
        assert_eq!(put(&table, true), None);
        let without = put(&table, false).unwrap();
        assert_eq!(without, knobs(r#"{"quota": "1cpus", "burst": "0"}"#));
        table.doubt("/g");
        assert!(put(&table, true).is_some());
    }

    #[test]
    fn a_group_that_is_refused_stays_and_one_that_is_not_desired_is_removed() {
        let mut table = table(r#"{"class": "batch"}"#);
        let refused = EngineError::BadName { name: "g".into() };
        let decided = decide("/g", table.get("/g").unwrap(), Some(Err(refused)), true);
        assert!(matches!(decided, Decision::Refuse(_)));
        table.set_desired("/g", None);
        let decided = decide("/g", table.get("/g").unwrap(), None, true);
        let removed = |action: &Action| *action == Action::Remove("/g".into());
        assert!(matches!(decided, Decision::Act { action, .. } if removed(&action)));
    }
}
