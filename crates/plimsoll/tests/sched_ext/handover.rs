//! The scheduler outlives the process that looks after it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuGroup;
use serde_json::Value;

use crate::common::{Running, is_alive, ms, nr_cpus, wait_until};
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

/// Two groups, of which the first leads.
fn two_groups(rig: &Rig) -> (Running, Running) {
    let first = rig.batch("first", "", &["sleep", "600"]);
    wait_until("it leads", SHORT, || {
        rig.host.batch("first").is_populated().unwrap_or(false)
    });
    let second = rig.batch_burners("second", QUOTA, 1, 1);
    assert_eq!(leader(rig), first.pid());
    (first, second)
}

/// What must go on when somebody else leads.
#[derive(Debug)]
struct Seen {
    scheduler: Value,
    groups_id: u64,
    nr_periods: u64,
}

fn scheduler(rig: &Rig) -> Value {
    rig.host.show("second")["statistics"]["scheduler"].clone()
}

fn look(rig: &Rig) -> Seen {
    let statistics = rig.host.show("second")["statistics"].clone();
    Seen {
        groups_id: rig.debug()["status"]["groups_id"].as_u64().unwrap(),
        nr_periods: statistics["quota"]["nr_periods"].as_u64().unwrap(),
        scheduler: statistics["scheduler"].clone(),
    }
}

fn leader(rig: &Rig) -> i32 {
    let status = &rig.debug()["status"];
    i32::try_from(status["leader_pid"].as_i64().unwrap()).unwrap()
}

fn wait_for_leader(rig: &Rig, keeper: &Running) {
    wait_until("the other leads", SHORT, || leader(rig) == keeper.pid());
}

/// What a group uses over whole periods around what `act` does, in percent of one CPU.
fn rate_around(group: &CpuGroup, act: impl FnOnce()) -> f64 {
    let (start, before) = (Instant::now(), group.usage_ns().unwrap());
    thread::sleep(ms(300));
    act();
    let passed = start.elapsed().as_millis().div_ceil(PERIOD.as_millis());
    // Not less than the second for which a scheduler that has to be loaded would be missed.
    let periods = u32::try_from(passed).unwrap().max(8) + 10;
    thread::sleep((start + PERIOD * periods).saturating_duration_since(Instant::now()));
    let elapsed = start.elapsed().as_nanos() as f64;
    100.0 * (group.usage_ns().unwrap() - before) as f64 / elapsed
}

/// Panics unless the second group leads the same scheduler, and nothing was lost.
fn expect_same_scheduler(rig: &Rig, second: &Running, before: &Seen) {
    wait_for_leader(rig, second);
    let after = look(rig);
    println!("{before:?}\n-> {after:?}");
    assert_eq!(after.groups_id, before.groups_id);
    assert!(after.nr_periods >= before.nr_periods + 10);
    assert_eq!(after.scheduler["leader_pid"], second.pid());
    assert_eq!(after.scheduler["state"], "running");
    assert_eq!(after.scheduler["nr_reloads"], 0);
    assert_eq!(after.scheduler["last_exit"], Value::Null);
    assert_eq!(state(), "enabled");
    // Nobody was told anything, for nothing has happened to anybody.
    assert!(
        !second.stderr().contains("scheduler"),
        "{}",
        second.stderr()
    );
}

#[test]
fn a_leader_that_ends_leaves_the_scheduler_to_the_next_without_a_gap() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let before = look(&rig);
    let rate = rate_around(&rig.host.batch("second"), || {
        rig.end("first", first);
    });
    expect_same_scheduler(&rig, &second, &before);
    assert_within("a quota of 20 % around the end", rate, quota_bounds(20.0));
    second.stop();
    rig.assert_nothing_left();
}

#[test]
fn a_leader_that_is_killed_leaves_the_scheduler_to_the_next_without_a_gap() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let orphan = rig.host.batch("first").all_processes().unwrap()[0];
    let before = look(&rig);
    let rate = rate_around(&rig.host.batch("second"), || first.kill_hard());
    expect_same_scheduler(&rig, &second, &before);
    assert_within("a quota of 20 % around a kill -9", rate, quota_bounds(20.0));
    // The scheduler has a keeper still: only the group of the dead one is undone.
    let restored = rig.host.run(["restore", "--json"]).good().json();
    assert_eq!(restored["undone"], serde_json::json!(["first"]));
    assert_eq!(state(), "enabled");
    assert!(is_alive(orphan) && are_fair(&[orphan]));
    kill(Pid::from_raw(orphan), Signal::SIGKILL).unwrap();
    second.stop();
    rig.assert_nothing_left();
}

#[test]
fn the_last_keeper_takes_the_scheduler_out_even_if_it_does_not_lead() {
    let rig = rig();
    // The leader goes first, and the other ends before it can take over.
    for _ in 0..3 {
        let (first, second) = two_groups(&rig);
        for keeper in [&first, &second] {
            keeper.send(Signal::SIGTERM);
        }
        for keeper in [first, second] {
            keeper.finish(SHORT);
        }
        rig.assert_nothing_left();
    }
}

#[test]
fn the_next_leader_does_what_the_first_did_for_tasks_that_come_and_go() {
    let mut rig = rig();
    let elsewhere = rig.host.group("elsewhere");
    let (first, second) = two_groups(&rig);
    rig.end("first", first);
    wait_for_leader(&rig, &second);
    let group = rig.host.batch("second");
    let guest = rig.fair_load(&elsewhere, 1, "burn --threads 2 --duration 600s");
    let tids = wait_for_threads(guest.pid(), 3);
    for _ in 0..2 {
        group.add_process(guest.pid()).unwrap();
        wait_until("it is the scheduler's", SHORT, || are_scheduled(&tids));
        elsewhere.add_process(guest.pid()).unwrap();
        // Only the scheduler's events tell the leader so.
        wait_until("it is fair again", SHORT, || are_fair(&tids));
    }
    guest.kill_hard();
    second.stop();
    rig.assert_nothing_left();
}

#[test]
fn the_next_leader_rescues_tasks_that_wait_for_too_long() {
    let mut rig = rig();
    let fair = rig.host.group("fair");
    let (first, second) = two_groups(&rig);
    let knobs = ["set", "second", "--quota", "max"];
    rig.host.run(knobs).good();
    rig.end("first", first);
    wait_for_leader(&rig, &second);
    let tids = burners(&rig.host.batch("second"));
    let rivals = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    // Until then, what was running has ended its slice.
    thread::sleep(ms(1000));
    let before: Vec<u64> = tids.iter().map(|tid| ran_ns(*tid)).collect();
    // The kernel's watchdog bites after 30 s.
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
    // Where the kernel has no server for it, only the leader can let a task run.
    assert!(has_ext_server() || status["nr_rescues"].as_u64().unwrap() > 0);
    rivals.kill_hard();
    second.stop();
    rig.assert_nothing_left();
}

#[test]
fn the_next_leader_reports_an_exit_and_loads_the_scheduler_again() {
    let rig = rig();
    let (first, second) = two_groups(&rig);
    let group = rig.host.batch("second");
    rig.end("first", first);
    wait_for_leader(&rig, &second);
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    wait_until("it is reported", SHORT, || {
        second.stderr().contains("thrown out")
    });
    assert!(second.stderr().to_lowercase().contains("sysrq"));
    wait_until("it is loaded again", SHORT, || {
        let scheduler = scheduler(&rig);
        scheduler["state"] == "running" && scheduler["nr_reloads"] == 1
    });
    wait_until("its tasks are the scheduler's", SHORT, || {
        are_scheduled(&burners(&group))
    });
    assert_quotas("a quota of 20 % afterwards", &[&group], &[20.0]);
    second.stop();
    rig.assert_nothing_left();
}

/// Both keepers are killed; the processes that they leave behind.
fn kill_both(rig: &Rig) -> Vec<i32> {
    let (first, second) = two_groups(rig);
    let mut left = rig.host.batch("first").all_processes().unwrap();
    left.extend(rig.host.batch("second").all_processes().unwrap());
    first.kill_hard();
    second.kill_hard();
    left
}

fn end_all(pids: &[i32]) {
    for pid in pids {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn when_all_keepers_were_killed_restore_takes_the_scheduler_out() {
    let rig = rig();
    let left = kill_both(&rig);
    // Nobody leads, but limits hold.
    let group = rig.host.batch("second");
    assert_quotas("a quota of 20 % without a keeper", &[&group], &[20.0]);
    assert_eq!(state(), "enabled");
    let said = rig.host.run(["restore"]).good();
    println!("{}", said.stdout.trim_end());
    assert!(are_fair(&left));
    rig.assert_nothing_left();
    end_all(&left);
}

#[test]
fn when_all_keepers_were_killed_the_next_start_begins_anew_in_any_mode() {
    let rig = rig();
    let left = kill_both(&rig);
    let third = rig.batch("third", "--mode all", &["sleep", "600"]);
    wait_until("it is there", SHORT, || {
        rig.host.batch("third").is_populated().unwrap_or(false)
    });
    assert!(are_fair(&left));
    end_all(&left);
    let shown = rig.host.show("third")["statistics"]["scheduler"].clone();
    assert_eq!(shown["leader_pid"], third.pid(), "{shown}");
    assert_eq!(shown["nr_reloads"], 0, "{shown}");
    assert_eq!(shown["mode"], "all", "{shown}");
    third.stop();
    rig.assert_nothing_left();
}
