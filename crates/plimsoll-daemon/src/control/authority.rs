//! Who may do what.
//!
//! Root and the members of group `plimsoll` may do everything. Anybody else
//! may look, and may restrict processes that are their own: never raise
//! anything, and never touch what somebody else has restricted or what holds
//! for others too.
//!
//! Pure: the service finds out the [`Facts`] first.

use plimsoll_engine::knobs::{Bandwidth, Class, Headroom, Knobs, Tolerance};
use thiserror::Error;

use super::peer::{OPERATORS, Peer};
use super::protocol::{Choice, Request, Run, Set};
use crate::config::EnforcerWanted;

/// The weight that everybody has.
pub const WEIGHT_DEFAULT: u32 = 100;
/// A user who is no operator has no more groups at a time.
pub const USER_GROUPS_MAX: usize = 64;

/// All of them together have no more: one may have the numbers of many users
/// (`/etc/subuid`), and the BPF scheduler has 1,023 places for groups.
pub const USERS_GROUPS_MAX: usize = 512;

/// What the target of a request is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Target {
    /// There is none; or a cgroup of somebody else's, or a group of the file
    /// or of attributes.
    #[default]
    Others,
    /// A process that is in no group of the daemon's, and would be moved into
    /// one.
    Process {
        /// Whose it is: [`super::target::Process::owner`].
        owner: Option<u32>,
        /// What limits it now and would no longer: the group or cgroup that
        /// it would leave ([`super::target::confined_by`]).
        confined_by: Option<String>,
    },
    /// A group that `run` or `set` has made for processes.
    Group {
        /// Who asked for it.
        owner: u32,
    },
}

/// What the service knows of the target of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub target: Target,
    /// What is in force for it.
    pub knobs: Knobs,
    /// Of that, what others than its owner have asked for: no owner may
    /// loosen it. Where that is not known: all of it.
    pub bound: Knobs,
    /// The highest nice level of its tasks.
    pub nice: i32,
    /// Headroom in force for all batch work.
    pub headroom: Option<Headroom>,
    /// Tolerance in force for all batch work.
    pub tolerance: Tolerance,
    /// What batch work gets that asks for none.
    pub tolerance_unasked: Tolerance,
    /// Groups that the asker has by now.
    pub owned_groups: usize,
    /// Groups that all users but root have by now.
    pub users_groups: usize,
    /// A cap that holds for each task by itself takes a cgroup for each, and
    /// looking after all of them every few milliseconds.
    pub tasks_take_cgroups: bool,
}

/// Why not: one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Only operators may do `what`; it reads on after "may".
fn only_operators(what: &str) -> Refusal {
    Refusal(format!(
        "only root and members of group `{OPERATORS}` may {what}"
    ))
}

/// Whether `peer` may ask for `request`.
///
/// # Errors
/// Says who may, or what would be allowed.
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
        Request::Debug => Err(only_operators("see what the daemon knows of itself")),
        Request::Restore => Err(only_operators("undo what others have set")),
    }
}

/// The enforcer that a peer may have of an owner without a configuration file.
///
/// # Errors
/// Says who may have the one that was asked for.
pub fn enforcer_of(peer: &Peer, choice: Choice) -> Result<EnforcerWanted, Refusal> {
    if peer.is_operator {
        return Ok(choice.enforcer);
    }
    if choice.enforcer == EnforcerWanted::SchedExt || choice.mode.is_some() {
        return Err(only_operators("choose the scheduler of the whole machine"));
    }
    Ok(EnforcerWanted::Cgroup)
}

/// Whether the target is a group of the asker's.
fn check_owner(peer: &Peer, facts: &Facts, name: &str) -> Result<(), Refusal> {
    match facts.target {
        Target::Group { owner } if owner == peer.uid => Ok(()),
        _ => Err(only_operators(&format!(
            "change `{name}`; others only groups and processes of their own"
        ))),
    }
}

fn check_unbound(facts: &Facts, what: &str) -> Result<(), Refusal> {
    if facts.bound.is_empty() {
        Ok(())
    } else {
        Err(only_operators(what))
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

/// Whether a process may get a group of the asker's.
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

/// Whether knobs only restrict, and only their own group.
fn check_knobs(asked: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    check_place(asked, facts)?;
    check_bandwidth(asked, facts)?;
    check_caps(asked, facts)?;
    check_machine(asked, facts)
}

/// Class, nice and weight.
fn check_place(asked: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let was_batch = facts.knobs.class.or(facts.bound.class) == Some(Class::Batch);
    if was_batch && asked.class == Some(Class::Normal) {
        return Err(only_operators("take something out of class batch"));
    }
    let bound_nice = facts.bound.nice.map_or(facts.nice, |nice| nice.nice);
    let lowest = facts.nice.max(bound_nice);
    if asked.nice.is_some_and(|nice| nice.nice < lowest) {
        return Err(only_operators(&format!(
            "set a nice level below the present {lowest}"
        )));
    }
    let bound_weight = facts.bound.weight.map_or(WEIGHT_DEFAULT, |set| set.weight);
    let highest = bound_weight.min(WEIGHT_DEFAULT);
    if asked.weight.is_some_and(|set| set.weight > highest) {
        return Err(only_operators(&format!("set a weight above {highest}")));
    }
    Ok(())
}

/// Quota and burst: neither the rate nor what runs at once may exceed what
/// others have set.
fn check_bandwidth(asked: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let Some(bound) = facts.bound.quota else {
        return Ok(());
    };
    if asked.quota.is_none() && asked.burst.is_none() {
        return Ok(());
    }
    let wanted = facts.knobs.overlaid(asked);
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
fn check_caps(asked: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let bound = &facts.bound;
    if let (Some(new), Some(old)) = (asked.cap, bound.cap)
        && new.permille > old.permille
    {
        return Err(only_operators(&format!("set a cap above {old}")));
    }
    if let (Some(new), Some(old)) = (asked.soft_cap, bound.soft_cap)
        && new.permille > old.permille
    {
        return Err(only_operators(&format!("set a soft cap above {old}")));
    }
    // A longer one lets more run at once, a shorter one sooner again.
    if let (Some(new), Some(_)) = (asked.half_life, bound.soft_cap)
        && new != bound.half_life.unwrap_or_default()
    {
        let old = bound.half_life.unwrap_or_default();
        return Err(only_operators(&format!("set another half-life than {old}")));
    }
    if asked.per_task && facts.tasks_take_cgroups {
        return Err(only_operators(
            "let a cap hold for each task by itself, where each takes a cgroup of its own",
        ));
    }
    let capped_together = (bound.cap.is_some() || bound.soft_cap.is_some()) && !bound.per_task;
    if asked.per_task && capped_together {
        return Err(only_operators("let a cap hold for each task by itself"));
    }
    if let (Some(new), Some(old)) = (asked.cpu_limit, bound.cpu_limit)
        && new.ppm > old.ppm
    {
        return Err(only_operators(&format!("set a CPU limit above {old}")));
    }
    Ok(())
}

/// Headroom and tolerance: of all batch work, the largest headroom and the
/// smallest tolerance hold for all. So a user may ask for no more than there
/// is.
fn check_machine(asked: &Knobs, facts: &Facts) -> Result<(), Refusal> {
    let is_batch = facts.knobs.overlaid(asked).class == Some(Class::Batch);
    if let (Some(new), Some(old)) = (asked.headroom, facts.bound.headroom)
        && !is_within(old, Some(new))
    {
        return Err(only_operators(&format!("set a headroom below {old}")));
    }
    if let (Some(new), Some(old)) = (asked.tolerance, facts.bound.tolerance)
        && new != old
    {
        return Err(only_operators(&format!("set another tolerance than {old}")));
    }
    if let Some(wanted) = asked.headroom {
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
    let own = facts.knobs.overlaid(asked).tolerance;
    let is_another = match asked.tolerance {
        Some(wanted) => !is_batch || wanted != facts.tolerance,
        // Who leaves headroom brings a tolerance along.
        None => {
            asked.headroom.is_some()
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

/// Whether a headroom asks for nothing that another does not. Of two forms,
/// neither is within the other: one is an average, one holds at every instant.
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
