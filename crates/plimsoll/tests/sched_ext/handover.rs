//! The scheduler and its groups outlive commands that end or are killed, and the owner.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;
use serde_json::Value;

use crate::common::{Running, is_alive, ms, nr_cpus, tasks_below, wait_until};
use crate::daemon_rig::kill_all;
use crate::rig::{
    Rig, SHORT, all_cpus, are_fair, are_scheduled, assert_quotas, assert_within, burners,
    has_ext_server, quota_bounds, ran_ns, rig, wait_for_threads,
};

const STATE: &str = "/sys/kernel/sched_ext/state";
const PERIOD: Duration = Duration::from_millis(100);
/// A second of a group without limits would be seen: it has a CPU of its own.
const QUOTA: &str = "--quota 20ms/100ms";

fn state() -> String {
    crate::common::text(Path::new(STATE)).trim().to_owned()
}

fn start(rig: &Rig, name: &str) -> Running {
    let running = rig.batch(name, "", &["sleep", "600"]);
    wait_until("it runs", SHORT, || {
        rig.host.batch(name).is_populated().unwrap_or(false)
    });
    running
}

/// Two groups; the scheduler was loaded for the first.
fn two_groups(rig: &Rig) -> (Running, Running) {
    let first = start(rig, "first");
    let second = rig.batch_burners("second", QUOTA, 1, 1);
    (first, second)
}

/// Two groups, whose owner is the second one: the first was killed.
fn two_groups_of_the_next_owner(rig: &Rig) -> (Running, Running) {
    let (first, second) = two_groups(rig);
    let before = rig.host.owner_pid();
    rig.host.kill_owner();
    start(rig, "third").stop();
    let after = rig.host.owner_pid();
    assert_ne!(before, after);
    assert_eq!(scheduler(rig)["owner_pid"], after);
    (first, second)
}

fn scheduler(rig: &Rig) -> Value {
    rig.host.show("second")["statistics"]["scheduler"].clone()
}

/// Checks that the second group continues when the other one ends.
#[derive(Debug)]
struct Seen {
    owner: i32,
    groups_id: u64,
    nr_periods: u64,
}

fn look(rig: &Rig) -> Seen {
    let statistics = rig.host.show("second")["statistics"].clone();
    Seen {
        owner: rig.host.owner_pid(),
        groups_id: rig.debug()["status"]["groups_id"].as_u64().unwrap(),
        nr_periods: statistics["quota"]["nr_periods"].as_u64().unwrap(),
    }
}

/// Usage of a group over whole periods around `act`, in percent of one CPU.
fn rate_around(group: &CpuGroup, act: impl FnOnce()) -> f64 {
    let (start, before) = (Instant::now(), group.usage_ns().unwrap());
    thread::sleep(ms(300));
    act();
    let passed = start.elapsed().as_millis().div_ceil(PERIOD.as_millis());
    // At least the second that loading a scheduler would take.
    let periods = u32::try_from(passed).unwrap().max(8) + 10;
    thread::sleep((start + PERIOD * periods).saturating_duration_since(Instant::now()));
    let elapsed = start.elapsed().as_nanos() as f64;
    100.0 * (group.usage_ns().unwrap() - before) as f64 / elapsed
}

/// Panics if the second group is in another scheduler, or events were lost.
fn expect_same_scheduler(rig: &Rig, before: &Seen) {
    let after = look(rig);
    println!("{before:?}\n-> {after:?}");
    assert_eq!(after.groups_id, before.groups_id);
    assert!(after.nr_periods >= before.nr_periods + 10);
    rig.assert_never_ejected("second");
    assert_eq!(scheduler(rig)["owner_pid"], after.owner);
    // The group was not affected, so it reports nothing.
    let log = rig.owner_log();
    assert!(!log.contains("scheduler"), "{log}");
}

#[test]
fn scheduler_continues_without_a_gap_when_a_group_ends() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let before = look(&rig);
    let rate = rate_around(&rig.host.batch("second"), || {
        rig.end("first", first);
    });
    expect_same_scheduler(&rig, &before);
    assert_within("a quota of 20 % around the end", rate, quota_bounds(20.0));
    second.stop();
    rig.assert_nothing_left();
}

#[test]
fn groups_of_killed_commands_stay_scheduled_until_their_processes_end() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let (one, two) = (rig.host.batch("first"), rig.host.batch("second"));
    let before = look(&rig);
    let rate = rate_around(&two, || {
        first.kill_hard();
        second.kill_hard();
    });
    expect_same_scheduler(&rig, &before);
    assert_eq!(look(&rig).owner, before.owner);
    assert_within("a quota of 20 % around a kill -9", rate, quota_bounds(20.0));
    let left = one.all_processes().unwrap();
    assert!(left.len() == 1 && are_scheduled(&left));
    // A living owner keeps its groups.
    let restored = rig.host.run(["restore", "--json"]).good().json();
    assert_eq!(restored["undone"], serde_json::json!([]));
    assert!(are_scheduled(&left));
    kill_all(&left);
    kill_all(&two.all_processes().unwrap());
    rig.assert_nothing_left();
}

#[test]
fn commands_that_end_at_the_same_time_leave_nothing() {
    let rig = rig();
    for _ in 0..3 {
        let (first, second) = two_groups(&rig);
        for command in [&first, &second] {
            command.send(Signal::SIGTERM);
        }
        for command in [first, second] {
            command.finish(SHORT);
        }
        rig.assert_nothing_left();
    }
}

#[test]
fn groups_of_a_killed_owner_stay_limited_until_restore() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let (one, two) = (rig.host.batch("first"), rig.host.batch("second"));
    let mut left = tasks_below(&one);
    left.extend(tasks_below(&two));
    rig.host.kill_owner();
    // Its clients need not live either.
    first.kill_hard();
    second.kill_hard();
    assert_quotas("a quota of 20 % without an owner", &[&two], &[20.0]);
    assert_eq!(state(), "enabled");
    assert!(are_scheduled(&left));
    let said = rig.host.run(["restore"]).good();
    println!("{}", said.stdout.trim_end());
    assert!(left.iter().all(|tid| is_alive(*tid)) && are_fair(&left));
    rig.assert_nothing_left();
    kill_all(&left);
}

#[test]
fn scheduler_of_a_killed_owner_continues_under_the_next_without_a_gap() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let before = look(&rig);
    let mut third = None;
    let rate = rate_around(&rig.host.batch("second"), || {
        rig.host.kill_owner();
        third = Some(start(&rig, "third"));
    });
    expect_same_scheduler(&rig, &before);
    assert_ne!(look(&rig).owner, before.owner);
    assert_within("a quota of 20 % around a kill -9", rate, quota_bounds(20.0));
    for command in third.into_iter().chain([first, second]) {
        command.stop();
    }
    rig.assert_nothing_left();
}

#[test]
fn next_owner_has_the_groups_with_processes_and_mode() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let (one, two) = (rig.host.batch("first"), rig.host.batch("second"));
    let members = || [&one, &two].map(|group| group.all_processes().unwrap());
    let before = members();
    rig.host.kill_owner();
    first.kill_hard();
    second.kill_hard();
    // It does not reload for a command with another mode.
    let words = ["run", "--class", "batch", "--mode", "all", "--", "true"];
    let refused = rig.host.run(words);
    assert_eq!(refused.code(), 125, "{refused:?}");
    assert!(refused.one_line().contains("partial"), "{refused:?}");
    assert_eq!(members(), before);
    wait_until("its tasks are the scheduler's", SHORT, || {
        are_scheduled(&before.concat())
    });
    assert_quotas("a quota of 20 % under the next owner", &[&two], &[20.0]);
    let shown = scheduler(&rig);
    assert_eq!(shown["owner_pid"], rig.host.owner_pid(), "{shown}");
    assert_eq!(shown["nr_reloads"], 0, "{shown}");
    assert_eq!(shown["mode"], "partial", "{shown}");
    kill_all(&before.concat());
    rig.assert_nothing_left();
}

#[test]
fn next_owner_follows_new_and_leaving_tasks() {
    let mut rig = rig();
    let elsewhere = rig.host.group("elsewhere");
    let (first, second) = two_groups_of_the_next_owner(&rig);
    let group = rig.host.batch("second");
    let guest = rig.fair_load(&elsewhere, 1, "burn --threads 2 --duration 600s");
    let tids = wait_for_threads(guest.pid(), 3);
    for _ in 0..2 {
        group.add_process(guest.pid()).unwrap();
        wait_until("it is the scheduler's", SHORT, || are_scheduled(&tids));
        elsewhere.add_process(guest.pid()).unwrap();
        // The owner learns it only by the scheduler's events.
        wait_until("it is fair again", SHORT, || are_fair(&tids));
    }
    guest.kill_hard();
    first.stop();
    second.stop();
    rig.assert_nothing_left();
}

#[test]
fn next_owner_runs_starved_tasks_by_the_fair_class_fallback() {
    let mut rig = rig();
    let fair = rig.host.group("fair");
    let (first, second) = two_groups_of_the_next_owner(&rig);
    let knobs = ["set", "second", "--quota", "max"];
    rig.host.run(knobs).good();
    rig.end("first", first);
    let tids = burners(&rig.host.batch("second"));
    let rivals = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    // Running tasks have ended their slices by then.
    thread::sleep(ms(1000));
    let before: Vec<u64> = tids.iter().map(|tid| ran_ns(*tid)).collect();
    // The kernel's watchdog expires after 30 s.
    let start = Instant::now();
    while tids
        .iter()
        .zip(&before)
        .any(|(tid, before)| ran_ns(*tid) == *before)
    {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "a task has not run"
        );
        thread::sleep(ms(50));
    }
    println!("all have run after {:.1?}", start.elapsed());
    let status = rig.debug()["status"].clone();
    println!("{status}");
    rig.assert_never_ejected("second");
    // On kernels without an ext server, only the owner can run a starved task.
    assert!(has_ext_server() || status["nr_rescues"].as_u64().unwrap() > 0);
    rivals.kill_hard();
    second.stop();
    rig.assert_nothing_left();
}

#[test]
fn next_owner_reports_an_exit_and_loads_the_scheduler_again() {
    let rig = rig();
    let (first, second) = two_groups_of_the_next_owner(&rig);
    let group = rig.host.batch("second");
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    wait_until("it is reported", SHORT, || {
        rig.owner_log().contains("thrown out")
    });
    assert!(rig.owner_log().to_lowercase().contains("sysrq"));
    wait_until("it is loaded again", SHORT, || {
        let scheduler = scheduler(&rig);
        scheduler["state"] == "running" && scheduler["nr_reloads"] == 1
    });
    wait_until("its tasks are the scheduler's", SHORT, || {
        are_scheduled(&burners(&group))
    });
    assert_quotas("a quota of 20 % afterwards", &[&group], &[20.0]);
    first.stop();
    second.stop();
    rig.assert_nothing_left();
}
