//! Actions: changes of the state in force, which an owner decides and an enforcer makes.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::group_policy::GroupPolicy;
use crate::machine_policy::MachinePolicy;
use crate::undo::UndoReport;

/// Change of the state in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Sets the policy of the whole machine, again if it is the same as before: values that others
    /// have set since are overwritten. A bandwidth slice that is not asked for any more is put
    /// back. The demand of headroom holds also where only the bandwidth slice was refused.
    SetMachine(MachinePolicy),
    /// Puts a group into force with its knobs, which the plan found enforceable: a new one, one
    /// that an earlier owner has left, or a present one, where values that others have written since
    /// are overwritten. Nothing is left of a new one that fails; another one stays as it was, as far
    /// as the kernel lets it.
    Put(GroupPolicy),
    /// Undoes all changes made for a group, and forgets the group. Fails when there is no such
    /// group.
    Remove(String),
    /// Undoes groups of an earlier owner that were not taken over and that are not wanted. Done
    /// after all present groups have been put into force. A wanted one, for which that failed, stays
    /// limited as it was left, until it is put into force or removed.
    FinishAdoption { wanted: BTreeSet<String> },
    /// Undoes all changes, also those that earlier owners have left.
    UndoAll,
    /// Lets go of all groups, which stay limited as they are, for another enforcer of this process
    /// to adopt. Afterwards this one has none.
    LeaveAll,
}

/// Makes changes in their order: consecutive groups all at once with `put_all`, any other change with
/// `make`.
pub fn in_order<E>(
    enforcer: &mut E,
    actions: &[Action],
    put_all: fn(&mut E, &[&GroupPolicy]) -> Vec<Result<()>>,
    make: fn(&mut E, &Action) -> Result<UndoReport>,
) -> Vec<Result<UndoReport>> {
    let mut results = Vec::with_capacity(actions.len());
    let are_puts = |a: &Action, b: &Action| matches!((a, b), (Action::Put(_), Action::Put(_)));
    for batch in actions.chunk_by(are_puts) {
        let groups = batch.iter().filter_map(|action| match action {
            Action::Put(group) => Some(group),
            _ => None,
        });
        let groups: Vec<&GroupPolicy> = groups.collect();
        if groups.is_empty() {
            results.extend(batch.iter().map(|action| make(enforcer, action)));
        } else {
            let done = put_all(enforcer, &groups).into_iter();
            results.extend(done.map(|done| done.map(|()| UndoReport::default())));
        }
    }
    results
}
