//! The scheduler and its groups outlive commands that end or are killed, and the owner.

use crate::common::Running;
use crate::rig::{Rig, wait_for_threads};
use crate::shared::with_command;

/// Quota of the second group. The group has a CPU of its own, so without limits it would not be
/// throttled.
const QUOTA: &str = "--quota 20ms/100ms";

/// A sleeping group that is to end, and one that is to go on.
fn two_groups(rig: &Rig) -> (Running, Running) {
    let first = rig.batch_sleeper("first");
    let second = rig.batch_burners("second", QUOTA, 1, 1);
    (first, second)
}

/// The scheduler with the second group.
#[derive(Debug)]
struct Seen {
    owner: i32,
    groups_id: u64,
    nr_periods: u64,
    log: String,
}

fn look(rig: &Rig) -> Seen {
    Seen {
        owner: rig.host.owner_pid(),
        groups_id: rig.groups_id(),
        nr_periods: rig.quota("second").nr_periods,
        log: rig.owner_log(),
    }
}

/// Panics unless the second group has gone on in the same scheduler, still limited: its counters
/// would start anew in another.
fn expect_same_scheduler(rig: &Rig, before: &Seen) {
    rig.assert_quota("second", 20_000, 100_000);
    let after = look(rig);
    assert_eq!(after.groups_id, before.groups_id);
    assert!(after.nr_periods >= before.nr_periods + 2);
    rig.assert_never_ejected();
    assert_eq!(i64::from(rig.scheduler().owner_pid), i64::from(after.owner));
    // The group was not affected, so it reports nothing.
    let new = after.log.strip_prefix(&before.log).unwrap_or(&after.log);
    assert!(!new.contains("scheduler"), "{new}");
}

/// Kills the owner, and starts a command, which starts the next one.
fn next_owner(rig: &Rig) {
    let before = rig.host.owner_pid();
    rig.host.kill_owner();
    rig.batch_sleeper("third").stop();
    assert_ne!(rig.host.owner_pid(), before);
}

#[test]
fn scheduler_continues_under_the_next_owner_which_follows_tasks_and_when_a_group_ends() {
    let rig = with_command();
    let elsewhere = rig.group("elsewhere");
    let (first, second) = two_groups(&rig);
    let before = look(&rig);
    next_owner(&rig);
    expect_same_scheduler(&rig, &before);
    let group = rig.host.batch("second");
    let guest = rig.fair_load(&elsewhere, 1, "burn --threads 2 --duration 80000s");
    wait_for_threads(guest.pid(), 4);
    for _ in 0..2 {
        group.add_process(guest.pid()).unwrap();
        rig.wait_until_runnable(&group, 3);
        elsewhere.add_process(guest.pid()).unwrap();
        rig.wait_until_runnable(&group, 1);
    }
    guest.kill_hard();
    let before = look(&rig);
    rig.end("first", first);
    expect_same_scheduler(&rig, &before);
    second.stop();
}
