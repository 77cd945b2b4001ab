//! Decision of reconcile about one group, from its desired and its applied state alone.

use plimsoll_engine::action::Action;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::Knobs;

use super::desired;
use super::parts::GroupEntry;

/// Decides on the change that the group `name` needs. `knobs`: those of its desired state that can
/// be enforced; `None`: no state is desired.
pub(super) fn decide(
    name: &str,
    entry: &GroupEntry,
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
