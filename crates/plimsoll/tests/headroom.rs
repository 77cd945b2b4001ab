//! Headroom by quotas: control, foreign cgroups and undo. `timing` tests the shares.

#![allow(clippy::unwrap_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Host, Running, ms, nr_cpus, tasks_below, wait_until};
use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Enforcer;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::{Bandwidth, Knobs};
use plimsoll_engine::runtime::RuntimeFolder;

fn start_side(host: &Host, name: &str, knobs: &str) -> Running {
    let threads = nr_cpus();
    let running = host.start_load(
        &format!("--name {name} --class batch --headroom 30% {knobs}"),
        &format!("burn --threads {threads} --duration 300s"),
    );
    let group = host.batch(name);
    // On a busy machine it has but its tolerance to start with.
    wait_until("batch work runs", Duration::from_secs(30), || {
        tasks_below(&group).len() > threads
    });
    running
}

/// The groups that share the allowance, as one of them reports.
fn sides(host: &Host, name: &str) -> Vec<String> {
    let state = host.show(name);
    let sides = &state["statistics"]["headroom"]["sides"];
    let names = sides.as_array().into_iter().flatten();
    names
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect()
}

/// Waits for the next update of a group's headroom controller.
fn wait_until_controlled(host: &Host, name: &str) {
    let updates = || {
        let state = host.show(name);
        state["statistics"]["headroom"]["nr_updates"].as_u64()
    };
    let before = updates();
    wait_until("it is controlled", Duration::from_secs(5), || {
        updates().is_some_and(|now| Some(now) > before)
    });
}

#[test]
fn headroom_continues_after_stops_and_kills_of_runs_and_owner() {
    let host = Host::shared();
    let first = start_side(&host, "first", "--weight 100");
    let second = start_side(&host, "second", "--weight 300");
    let groups = [host.batch("first"), host.batch("second")];
    let both = || sides(&host, "second") == ["first", "second"];
    wait_until("both are controlled", Duration::from_secs(5), both);
    first.send(Signal::SIGSTOP);
    wait_until_controlled(&host, "second");
    assert!(both());
    first.kill_hard();
    wait_until_controlled(&host, "second");
    assert!(both());
    host.kill_owner();
    for group in &groups {
        let quota = group.read_cpu_max().unwrap().quota_usec;
        assert!(quota.is_some(), "what is limited stays limited");
    }
    host.run(["run", "--", "true"]).good();
    wait_until("both are controlled again", Duration::from_secs(5), both);
    wait_until_controlled(&host, "second");
    let orphans = groups[0].all_processes().unwrap();
    second.stop();
    for pid in orphans {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    }
    wait_until("everything is as it was", Duration::from_secs(20), || {
        host.is_clean()
    });
}

#[test]
fn idle_batch_group_has_the_smallest_quota() {
    const HELD_USEC: u64 = 1_000;
    let host = Host::shared();
    let side = start_side(&host, "side", "");
    let sleeper = host.start("run --name sleeper --class batch -- sleep 600".split(' '));
    let group = host.batch("sleeper");
    wait_until("it is dormant", Duration::from_secs(20), || {
        let now = group.read_cpu_max();
        now.is_ok_and(|now| now.quota_usec == Some(HELD_USEC))
    });
    sleeper.stop();
    side.stop();
    host.assert_clean();
}

/// The cgroup that an enforcer holds has the quota that it had, and keeps it.
fn hold_and_withdraw(host: &Host, groups: &[CpuGroup], controller: &str) {
    let before: Vec<_> = groups.iter().map(|g| g.read_cpu_max().unwrap()).collect();
    let runtime = RuntimeFolder::at(host.runtime());
    let (mut enforcer, _) = CgroupEnforcer::start(host.hierarchy(), &runtime).unwrap();
    let name = |group: &CpuGroup| format!("/{}", group.path().display());
    let knobs: Knobs = serde_json::from_str(r#"{"headroom": "30%"}"#).unwrap();
    for group in groups {
        let (name, knobs) = (name(group), knobs.clone());
        let selector = Selector::Cgroup(group.path().to_owned());
        let policy = GroupPolicy {
            name,
            selector,
            knobs,
            scheduler: None,
        };
        enforcer.add(&policy, "a test").unwrap();
    }
    let tick_for = |enforcer: &mut CgroupEnforcer, time: Duration| {
        let start = Instant::now();
        while start.elapsed() < time {
            enforcer.tick(Instant::now()).unwrap();
            thread::sleep(ms(5));
        }
    };
    tick_for(&mut enforcer, ms(1_500));
    for (group, before) in groups.iter().zip(&before) {
        assert_ne!(group.read_cpu_max().unwrap(), *before);
    }
    for (index, group) in groups.iter().enumerate() {
        enforcer.remove(&name(group)).unwrap();
        for _ in 0..10 {
            for (gone, before) in groups[..=index].iter().zip(&before) {
                let now = gone.read_cpu_max().unwrap();
                assert_eq!(now, *before, "{controller}: {}", name(gone));
            }
            tick_for(&mut enforcer, ms(30));
        }
    }
    assert_eq!(enforcer.undo().problems, [""; 0]);
}

#[test]
fn quota_of_a_withdrawn_batch_group_is_restored() {
    let mut host = Host::shared();
    let groups = ["free", "limited"].map(|name| host.group(name));
    let half = Bandwidth::of("50ms/100ms".parse().unwrap(), None);
    groups[1].write_cpu_max(&half.into()).unwrap();
    let load = "burn --threads 1 --duration 300s";
    let loads = groups.each_ref().map(|g| host.start_load_in(g, load));
    hold_and_withdraw(&host, &groups, "the controller here");
    let other = start_side(&host, "other", "");
    wait_until("the other controls", Duration::from_secs(10), || {
        sides(&host, "other") == ["other"]
    });
    hold_and_withdraw(&host, &groups, "the controller elsewhere");
    wait_until("it has only its own", Duration::from_secs(5), || {
        sides(&host, "other") == ["other"]
    });
    other.stop();
    loads.into_iter().for_each(|load| drop(load.stop()));
}

#[test]
fn the_owner_takes_under_10_mib_and_runs_at_most_once_in_10_ms() {
    let host = Host::alone();
    let side = host.start_load(
        "--name side --class batch --headroom 30% --stats --json",
        "burn --threads 2 --duration 4s",
    );
    let group = host.batch("side");
    wait_until("it runs", Duration::from_secs(10), || {
        group.is_populated().unwrap_or(false)
    });
    thread::sleep(Duration::from_secs(2));
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.owner_pid())).unwrap();
    // Private memory only, because the size of the program depends on the build.
    let own = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let own_kib: u64 = own
        .and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap();
    let finished = side.finish(Duration::from_secs(30)).good();
    let headroom = &finished.stats()["statistics"]["headroom"];
    let count = |name: &str| headroom[name].as_u64().unwrap();
    let (updates, writes) = (count("nr_updates"), count("nr_writes"));
    println!("own memory {own_kib} KiB; {updates} updates, {writes} writes");
    assert!(own_kib < 10 * 1024, "{own_kib} KiB");
    assert!((100..=480).contains(&updates), "{updates} updates in 4 s");
    // It gets a quota; quotas are written only by updates.
    assert!((1..=updates).contains(&writes), "{writes} writes");
}
