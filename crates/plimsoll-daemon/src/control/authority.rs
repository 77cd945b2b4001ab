//! Permissions of users.
//!
//! Operators (root and the members of group `plimsoll`) may send any request. Other users may
//! read the state, and restrict processes of their own. They may not raise a limit, nor change a
//! group that another user has restricted, nor a setting that applies to other users.
//!
//! Pure: the service gathers the [`Facts`] first.

use plimsoll_engine::knobs::{Bandwidth, Class, Headroom, Knobs, Tolerance};
use thiserror::Error;

use super::peer::{OPERATORS, Peer};
use super::protocol::{Choice, Request, Run, Set};
use crate::config::EnforcerWanted;

/// Weight of a cgroup by default.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Maximum number of groups of one user that is not an operator.
pub const USER_GROUPS_MAX: usize = 64;

/// Maximum number of groups of all such users: one person may have many uids (`/etc/subuid`),
/// and the BPF scheduler has room for 1,023 groups.
pub const USERS_GROUPS_MAX: usize = 512;

/// Kind of a request's target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Target {
    /// No target, a foreign cgroup, or a group of the file or of attributes.
    #[default]
    Others,
    /// A process without a group, which would be moved into one.
    Process {
        /// Its user: [`super::target::Process::owner`].
        owner: Option<u32>,
        /// The group or cgroup that limits it and that it would leave
        /// ([`super::target::confined_by`]).
        confined_by: Option<String>,
    },
    /// A group that `run` or `set` made for processes.
    Group {
        /// The user that requested it.
        owner: u32,
    },
}

/// Facts about the target of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its kind.
    pub target: Target,
    /// Its knobs in force.
    pub knobs: Knobs,
    /// Of these, the knobs that other users than its owner set, which the owner may not loosen.
    /// All of them where that is unknown.
    pub bound: Knobs,
    /// The highest nice level of its tasks.
    pub nice: i32,
    /// Headroom in force for all batch work.
    pub headroom: Option<Headroom>,
    /// Tolerance in force for all batch work.
    pub tolerance: Tolerance,
    /// Tolerance of batch work that requests none.
    pub tolerance_unasked: Tolerance,
    /// Number of groups of the client's user.
    pub owned_groups: usize,
    /// Number of groups of all users but root.
    pub users_groups: usize,
    /// Whether a cap for each task takes a cgroup for each, and work for all of them every few
    /// milliseconds.
    pub tasks_take_cgroups: bool,
}

/// Refusal: the reason in one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Refuses an action of an ordinary user. `action` reads on after "may".
fn only_operators(action: &str) -> Refusal {
    Refusal(format!(
        "only root and members of group `{OPERATORS}` may {action}"
    ))
}

/// Checks that `peer` may send `request`.
///
/// # Errors
/// Names the permission that is missing, or the allowed values.
pub fn check(peer: &Peer, request: &Request, facts: &Facts) -> Result<(), Refusal> {
    if peer.is_operator {
        return Ok(());
    }
    match request {
        Request::Show { .. } | Request::Tasks { .. } => Ok(()),
        Request::Set(set) => check_set(peer, set, facts),
        Request::Run(run) => check_run(peer, run, facts),
        Request::Reset { target } => {
            check_owner(peer, facts, target)?;
            check_unbound(facts, "reset what others have set")
        }
        Request::End { name, release } => {
            check_owner(peer, facts, name)?;
            if *release {
                check_unbound(facts, "release processes from what others have set")?;
            }
            Ok(())
        }
        Request::Burst { .. } => Err(only_operators("switch bursts for all groups")),
        Request::Reload => Err(only_operators("reload the configuration")),
        Request::Debug => Err(only_operators("read the daemon's own state")),
        Request::Restore => Err(only_operators("undo what others have set")),
    }
}

/// The enforcer that a peer may have of an owner without a configuration file.
///
/// # Errors
/// When the peer chose one that takes an operator.
pub fn enforcer_of(peer: &Peer, choice: Choice) -> Result<EnforcerWanted, Refusal> {
    if peer.is_operator {
        return Ok(choice.enforcer);
    }
    if choice.enforcer == EnforcerWanted::SchedExt || choice.mode.is_some() {
        return Err(only_operators("choose the scheduler of the whole machine"));
    }
    Ok(EnforcerWanted::Cgroup)
}

/// Checks that the target is a group of the client's user.
fn check_owner(peer: &Peer, facts: &Facts, name: &str) -> Result<(), Refusal> {
    match facts.target {
        Target::Group { owner } if owner == peer.uid => Ok(()),
        _ => Err(only_operators(&format!(
            "change `{name}`; others only groups and processes of their own"
        ))),
    }
}

fn check_unbound(facts: &Facts, action: &str) -> Result<(), Refusal> {
    if facts.bound.is_empty() {
        Ok(())
    } else {
        Err(only_operators(action))
    }
}

fn check_set(peer: &Peer, set: &Set, facts: &Facts) -> Result<(), Refusal> {
    match &facts.target {
        Target::Process { owner, confined_by } => {
            check_process(peer, &set.target, *owner, confined_by.as_deref(), facts)?;
        }
        _ => check_owner(peer, facts, &set.target)?,
    }
    check_knobs(&set.knobs, facts)
}

fn check_run(peer: &Peer, run: &Run, facts: &Facts) -> Result<(), Refusal> {
    let name = run.pid.to_string();
    let Target::Process { owner, confined_by } = &facts.target else {
        return Err(only_operators(&format!(
            "take process {name} out of its group"
        )));
    };
    check_process(peer, &name, *owner, confined_by.as_deref(), facts)?;
    check_knobs(&run.knobs, facts)
}

/// Checks that a process may be moved into a group of the client's user.
fn check_process(
    peer: &Peer,
    name: &str,
    owner: Option<u32>,
    confined_by: Option<&str>,
    facts: &Facts,
) -> Result<(), Refusal> {
    if owner != Some(peer.uid) {
        return Err(only_operators(&format!(
            "restrict process {name}; others only processes of their own"
        )));
    }
    if let Some(place) = confined_by {
        return Err(only_operators(&format!(
            "take process {name} out of `{place}`, which limits it"
        )));
    }
    check_unbound(facts, &format!("take process {name} out of its group"))?;
    if facts.owned_groups >= USER_GROUPS_MAX {
        return Err(only_operators(&format!(
            "have more than {USER_GROUPS_MAX} groups at a time"
        )));
    }
    if facts.users_groups >= USERS_GROUPS_MAX {
        return Err(only_operators(&format!(
            "have groups beyond the {USERS_GROUPS_MAX} that all users have by now"
        )));
    }
    Ok(())
}

/// Checks that knobs only restrict, and only their own group.
fn check_knobs(knobs: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    check_weight(knobs, facts)?;
    check_bandwidth(knobs, facts)?;
    check_caps(knobs, facts)?;
    check_machine(knobs, facts)
}

/// Class, nice and weight.
fn check_weight(knobs: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let was_batch = facts.knobs.class.or(facts.bound.class) == Some(Class::Batch);
    if was_batch && knobs.class == Some(Class::Normal) {
        return Err(only_operators("take something out of class batch"));
    }
    let bound_nice = facts.bound.nice.map_or(facts.nice, |nice| nice.nice);
    let lowest = facts.nice.max(bound_nice);
    if knobs.nice.is_some_and(|nice| nice.nice < lowest) {
        return Err(only_operators(&format!(
            "set a nice level below the present {lowest}"
        )));
    }
    let bound_weight = facts.bound.weight.map_or(WEIGHT_DEFAULT, |set| set.weight);
    let highest = bound_weight.min(WEIGHT_DEFAULT);
    if knobs.weight.is_some_and(|set| set.weight > highest) {
        return Err(only_operators(&format!("set a weight above {highest}")));
    }
    Ok(())
}

/// Quota and burst: neither the rate nor the runtime in one go may exceed the values that other
/// users set.
fn check_bandwidth(knobs: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let Some(bound) = facts.bound.quota else {
        return Ok(());
    };
    if knobs.quota.is_none() && knobs.burst.is_none() {
        return Ok(());
    }
    let wanted = facts.knobs.overlaid(knobs);
    let old = Bandwidth::of(bound, facts.bound.burst);
    let new = Bandwidth::of(wanted.quota.unwrap_or(bound), wanted.burst);
    // Unlimited is more than any number.
    let quota_ns = |set: &Bandwidth| set.quota.quota_ns.unwrap_or(u64::MAX);
    let is_larger = quota_ns(&new) > quota_ns(&old);
    // The rates, each multiplied by both periods.
    let rate = |set: &Bandwidth, other: &Bandwidth| {
        u128::from(quota_ns(set)) * u128::from(other.quota.period_ns)
    };
    let is_faster = old.quota.quota_ns.is_some() && rate(&new, &old) > rate(&old, &new);
    if is_faster || is_larger || new.burst_ns > old.burst_ns {
        return Err(only_operators(&format!(
            "set quota and burst above {} with burst {}",
            old.quota,
            facts
                .bound
                .burst
                .map_or("0".into(), |burst| burst.to_string())
        )));
    }
    Ok(())
}

/// Caps, for all together or each alone, and the limit of each CPU.
fn check_caps(knobs: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let bound = &facts.bound;
    if let (Some(new), Some(old)) = (knobs.cap, bound.cap)
        && new.permille > old.permille
    {
        return Err(only_operators(&format!("set a cap above {old}")));
    }
    if let (Some(new), Some(old)) = (knobs.soft_cap, bound.soft_cap)
        && new.permille > old.permille
    {
        return Err(only_operators(&format!("set a soft cap above {old}")));
    }
    // A longer one lets more run at once, a shorter one sooner again.
    if let (Some(new), Some(_)) = (knobs.half_life, bound.soft_cap)
        && new != bound.half_life.unwrap_or_default()
    {
        let old = bound.half_life.unwrap_or_default();
        return Err(only_operators(&format!("set another half-life than {old}")));
    }
    if knobs.per_task && facts.tasks_take_cgroups {
        return Err(only_operators(
            "let a cap hold for each task by itself, where each takes a cgroup of its own",
        ));
    }
    let capped_together = (bound.cap.is_some() || bound.soft_cap.is_some()) && !bound.per_task;
    if knobs.per_task && capped_together {
        return Err(only_operators("let a cap hold for each task by itself"));
    }
    if let (Some(new), Some(old)) = (knobs.cpu_limit, bound.cpu_limit)
        && new.ppm > old.ppm
    {
        return Err(only_operators(&format!("set a CPU limit above {old}")));
    }
    Ok(())
}

/// Headroom and tolerance: the largest headroom and the smallest tolerance apply to all batch
/// work, so a user may request no more than the ones in force.
fn check_machine(knobs: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let is_batch = facts.knobs.overlaid(knobs).class == Some(Class::Batch);
    if let (Some(new), Some(old)) = (knobs.headroom, facts.bound.headroom)
        && !is_within(old, Some(new))
    {
        return Err(only_operators(&format!("set a headroom below {old}")));
    }
    if let (Some(new), Some(old)) = (knobs.tolerance, facts.bound.tolerance)
        && new != old
    {
        return Err(only_operators(&format!("set another tolerance than {old}")));
    }
    if let Some(wanted) = knobs.headroom {
        if !is_batch {
            return Err(only_operators("ask for headroom for work of class normal"));
        }
        if !is_within(wanted, facts.headroom) {
            let present = facts.headroom.map_or("none".into(), |h| h.to_string());
            return Err(only_operators(&format!(
                "ask for more headroom than there is ({present}), which holds for all batch work"
            )));
        }
    }
    let own = facts.knobs.overlaid(knobs).tolerance;
    let is_another = match knobs.tolerance {
        Some(wanted) => !is_batch || wanted != facts.tolerance,
        // A headroom brings the default tolerance along.
        None => {
            knobs.headroom.is_some()
                && facts.headroom.is_some()
                && own.unwrap_or(facts.tolerance_unasked) != facts.tolerance
        }
    };
    match is_another {
        true => Err(only_operators(&format!(
            "ask for another tolerance than there is ({}), which holds for all batch work",
            facts.tolerance
        ))),
        false => Ok(()),
    }
}

/// Whether a headroom is no larger than another. A share and a number of CPUs are never within
/// each other: one is an average, the other applies at every instant.
fn is_within(wanted: Headroom, present: Option<Headroom>) -> bool {
    match (wanted, present) {
        (Headroom::Share(0) | Headroom::Cpus(0), _) => true,
        (Headroom::Share(new), Some(Headroom::Share(old))) => new <= old,
        (Headroom::Cpus(new), Some(Headroom::Cpus(old))) => new <= old,
        _ => false,
    }
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
