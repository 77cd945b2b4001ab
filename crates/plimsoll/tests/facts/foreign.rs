//! Foreign cgroups with knobs on this kernel: each value comes back. What happens between any two
//! writes is shown by the engine's random steps on the kernel in memory.

use std::path::Path;

use plimsoll_cgroupfs::{CpuGroup, os};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::Bandwidth;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::nice;
use plimsoll_engine::undo::UndoReport;

use crate::common::{Host, assert_same, bandwidth_us};
use crate::headroom::with_headroom;
use crate::rig::shown;

/// The knobs that a test asks for on a foreign cgroup.
pub fn policy(group: &CpuGroup, json: &str) -> GroupPolicy {
    GroupPolicy {
        name: shown(group),
        selector: Selector::Cgroup(group.path().to_owned()),
        subject: String::new(),
        knobs: serde_json::from_str(json).unwrap(),
        is_scheduled: false,
    }
}

/// The engine without a daemon; nothing was left to it. Its batch groups yield to headroom.
pub fn start(host: &Host) -> CgroupEnforcer {
    let runtime = RuntimeFolder::at(host.runtime());
    let (mut enforcer, left) = CgroupEnforcer::start(host.hierarchy(), &runtime).unwrap();
    assert_eq!(left, UndoReport::default());
    enforcer.set_machine(&with_headroom("30%")).unwrap();
    enforcer
}

/// Lets the loops run some times, each time when something falls due. The clock is made up: it
/// jumps from one due time to the next.
fn tick(enforcer: &mut CgroupEnforcer, times: usize) {
    let mut now = os::now();
    for _ in 0..times {
        let due = enforcer.tick(now).unwrap();
        now = due.map_or(now, |due| due.max(now));
    }
}

/// A cgroup with knobs of its own.
fn with_values(host: &mut Host, name: &str) -> CpuGroup {
    let group = host.group(name);
    group.write_weight(50).unwrap();
    let quota = "70ms/100ms".parse().unwrap();
    let old = Bandwidth::of(quota, Some("30ms".parse().unwrap()));
    group.write_cpu_max(&old.into()).unwrap();
    group
}

const EVERY_KNOB: [&str; 12] = [
    r#"{"class": "batch"}"#,
    r#"{"class": "normal"}"#,
    r#"{"weight": "300"}"#,
    r#"{"nice": "7"}"#,
    r#"{"quota": "20ms/50ms", "burst": "5ms"}"#,
    r#"{"quota": "300ms/200ms"}"#,
    r#"{"quota": "max"}"#,
    r#"{"cap": "25%"}"#,
    r#"{"soft-cap": "0%"}"#,
    r#"{"soft-cap": "10%", "weight": "200"}"#,
    r#"{"class": "batch"}"#,
    r#"{"class": "batch", "nice": "3"}"#,
];

#[test]
fn every_knob_comes_back_by_remove_and_by_undo() {
    let mut host = Host::new();
    let plain = with_values(&mut host, "plain");
    let idle = host.group("idle");
    if idle.has_idle() {
        idle.write_idle(true).unwrap();
    }
    let sleepers = [&plain, &idle].map(|group| host.start_in(group, ["sleep", "600"]));
    let before = host.snapshot();
    let levels = || {
        sleepers
            .each_ref()
            .map(|sleeper| nice(sleeper.pid()).unwrap())
    };
    let levels_before = levels();
    for json in EVERY_KNOB {
        for remove in [false, true] {
            let what = format!("{json}, remove {remove}");
            let mut enforcer = start(&host);
            let mut held = vec![&plain];
            if !json.contains("weight") {
                held.push(&idle);
            }
            for group in &held {
                enforcer.put(&policy(group, json)).unwrap();
                enforcer.sample(&shown(group), false).unwrap();
            }
            if json.contains("batch") || json.contains("soft") {
                tick(&mut enforcer, 10);
            }
            if json.contains("nice") {
                assert_ne!(levels()[0], levels_before[0], "{what}");
            }
            let mut report = UndoReport::default();
            if remove {
                for group in held {
                    let removed = enforcer.remove(&shown(group)).unwrap();
                    report.problems.extend(removed.problems);
                }
            }
            report.problems.extend(enforcer.undo().problems);
            assert_eq!(report.problems, <[String; 0]>::default(), "{what}");
            println!("{what}");
            assert_same(&before, &host.snapshot());
            assert_eq!(levels(), levels_before, "{what}");
        }
    }
}

#[test]
fn nested_limits_are_accepted_in_any_order() {
    let mut host = Host::new();
    let outer = host.group("outer");
    outer.enable_children().unwrap();
    let inner = outer.child("inner");
    inner.create().unwrap();
    let narrow = Bandwidth::of("10ms/100ms".parse().unwrap(), None);
    outer.write_cpu_max(&narrow.into()).unwrap();
    let before = host.snapshot();
    for order in [[&outer, &inner], [&inner, &outer]] {
        let mut enforcer = start(&host);
        let policies = order.map(|group| {
            let json = r#"{"quota": "50ms/100ms"}"#;
            policy(group, json)
        });
        for result in enforcer.put_all(&policies.iter().collect::<Vec<_>>()) {
            result.unwrap();
        }
        assert_eq!(bandwidth_us(&inner).0, 50_000);
        // Version 1 accepts the old value of the outer cgroup only after that of the inner one.
        let report = enforcer.remove(&policies[0].name).unwrap();
        assert_eq!(report.problems, <[String; 0]>::default());
        if host.is_v2() || order[0].path() == inner.path() {
            assert_ne!(bandwidth_us(order[0]).0, 50_000);
        }
        let report = enforcer.remove(&policies[1].name).unwrap();
        assert_eq!(report.problems, <[String; 0]>::default());
        assert_eq!(bandwidth_us(&outer).0, 10_000);
        for result in enforcer.put_all(&policies.iter().collect::<Vec<_>>()) {
            result.unwrap();
        }
        assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
        assert_same(&before, &host.snapshot());
    }
}

mod v2_only {
    use super::*;

    #[test]
    fn a_cgroup_without_the_controller_gets_it_and_loses_it_at_the_end() {
        let mut host = Host::new();
        assert!(host.is_v2(), "cgroup v1 has no controllers to give");
        let outer = host.group("outer");
        let middle = outer.child("middle");
        let inner = middle.child("inner");
        for group in [&middle, &inner] {
            group.create().unwrap();
        }
        assert!(!inner.cpu_file("cpu.weight").exists());
        let before = host.snapshot();
        let mut enforcer = start(&host);
        let weighed = policy(&inner, r#"{"weight": "70"}"#);
        enforcer.put(&weighed).unwrap();
        assert_eq!(inner.read_weight().unwrap(), 70);
        enforcer.remove(&weighed.name).unwrap();
        assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
        assert!(!Path::new(&inner.cpu_file("cpu.weight")).exists());
        assert_same(&before, &host.snapshot());
        // Beside a process of its own, the controller would make `middle` threaded.
        let sleeper = host.start_in(&middle, ["sleep", "600"]);
        let mut enforcer = start(&host);
        let refused = enforcer.put(&weighed).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("holds process {}", sleeper.pid())),
            "{refused}"
        );
        assert!(!Path::new(&inner.cpu_file("cpu.weight")).exists());
        assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
        sleeper.stop();
        assert_same(&before, &host.snapshot());
    }
}
