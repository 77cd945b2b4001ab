//! Decision of reconcile about one group, from its desired and its applied state alone.

use plimsoll_engine::action::Action;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::Knobs;

use super::desired;
use super::parts::Entry;

/// Decides on the change that the group `name` needs. `knobs`: those of its desired state that can
/// be enforced; `None`: no state is desired.
pub(super) fn decide(
    name: &str,
    entry: &Entry,
    knobs: Option<Knobs>,
    burst_enabled: bool,
) -> Option<Action> {
    let (Some(desired), Some(knobs)) = (&entry.desired, knobs) else {
        return Some(Action::Remove(name.to_owned()));
    };
    let knobs = desired::with_burst(knobs, burst_enabled);
    let is_in_force = entry.applied.as_ref() == Some(&knobs) && !entry.is_doubtful;
    (!is_in_force).then(|| {
        Action::Put(GroupPolicy {
            knobs,
            ..desired.policy.clone()
        })
    })
}

#[cfg(test)]
mod tests {
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
        let desired = entry.desired.as_ref().map(|it| it.knobs().clone());
        match decide("/g", entry, desired, burst_enabled)? {
            Action::Put(group) => Some(group.knobs),
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
    fn a_group_that_is_not_desired_is_removed() {
        let mut table = table(r#"{"class": "batch"}"#);
        table.set_desired("/g", None);
        let decided = decide("/g", table.get("/g").unwrap(), None, true);
        assert_eq!(decided, Some(Action::Remove("/g".into())));
    }
}
