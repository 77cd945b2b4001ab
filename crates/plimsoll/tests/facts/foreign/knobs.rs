//! All knobs, and the restoration of their first values.

use std::path::{Path, PathBuf};

use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::undo::UndoReport;

use super::rig::{knobs, name_of, nice_of, policy, start, tick, with_values};
use crate::common::{Host, assert_same, bandwidth_us, knob};

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
    r#"{"headroom": "30%", "tolerance": "1ms/100ms"}"#,
    r#"{"class": "batch", "nice": "3", "headroom": "30%"}"#,
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
    for json in EVERY_KNOB {
        for remove in [false, true] {
            let what = format!("{json}, remove {remove}");
            let mut enforcer = start(&host);
            let mut held = vec![&plain];
            if !json.contains("weight") {
                held.push(&idle);
            }
            for group in &held {
                enforcer.add(&policy(group, json), "a test").unwrap();
                enforcer.sample(&name_of(group)).unwrap();
            }
            if json.contains("headroom") || json.contains("soft") {
                tick(&mut enforcer, 10);
            }
            if json.contains("nice") {
                assert!(nice_of(sleepers[0].pid()) > 0, "{what}");
            }
            let mut report = UndoReport::default();
            if remove {
                for group in held {
                    let removed = enforcer.remove(&name_of(group)).unwrap();
                    report.problems.extend(removed.problems);
                }
            }
            report.problems.extend(enforcer.undo().problems);
            assert_eq!(report.problems, <[String; 0]>::default(), "{what}");
            println!("{what}");
            assert_same(&before, &host.snapshot());
            let levels = [nice_of(sleepers[0].pid()), nice_of(sleepers[1].pid())];
            assert_eq!(levels, [0, 0], "{what}");
        }
    }
}

#[test]
fn requested_knobs_apply_and_a_removed_knob_is_restored() {
    let mut host = Host::new();
    let group = with_values(&mut host, "g");
    let name = name_of(&group);
    let before = host.snapshot();
    let mut enforcer = start(&host);
    enforcer
        .add(&policy(&group, r#"{"cap": "20%"}"#), "a test")
        .unwrap();
    assert_eq!(bandwidth_us(&group), (2_000, 10_000, 1_000));
    assert_eq!(enforcer.knobs(&name).unwrap(), &knobs(r#"{"cap": "20%"}"#));
    assert_eq!(enforcer.shown_path(&name).unwrap(), PathBuf::from(&name));
    enforcer
        .change(&name, &knobs(r#"{"class": "batch"}"#))
        .unwrap();
    assert_eq!(bandwidth_us(&group), (70_000, 100_000, 30_000));
    assert_eq!(knob(&group, "cpu.idle"), "1");
    enforcer
        .change(&name, &knobs(r#"{"soft-cap": "0%"}"#))
        .unwrap();
    tick(&mut enforcer, 5);
    assert!(enforcer.sample(&name).unwrap().soft_cap.unwrap().background);
    enforcer
        .change(&name, &knobs(r#"{"headroom": "30%"}"#))
        .unwrap();
    assert_eq!(knob(&group, "cpu.idle"), "0");
    assert_eq!(bandwidth_us(&group).1, 1_000_000);
    tick(&mut enforcer, 5);
    enforcer
        .change(&name, &knobs(r#"{"weight": "300", "quota": "20ms/50ms"}"#))
        .unwrap();
    assert_eq!(group.read_weight().unwrap(), 300);
    // What is said of the burst is nothing: it is what it was, as far as the
    // kernel takes it.
    assert_eq!(bandwidth_us(&group), (20_000, 50_000, 20_000));
    // Each line of the journal is about a value that was changed externally.
    enforcer.change(&name, &Knobs::default()).unwrap();
    let runtime_only = |path: &&PathBuf| path.starts_with(host.runtime());
    let now = host.snapshot();
    assert_eq!(now.keys().filter(runtime_only).count(), 1);
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    assert_same(&before, &host.snapshot());
}

#[test]
fn a_process_that_is_moved_in_goes_back() {
    let mut host = Host::new();
    let group = host.group("g");
    let home = host.group("home");
    let sleeper = host.start_in(&home, ["sleep", "600"]);
    let before = host.snapshot();
    let mut enforcer = start(&host);
    let name = name_of(&group);
    enforcer
        .add(&policy(&group, r#"{"nice": "6"}"#), "")
        .unwrap();
    enforcer.add_process(&name, sleeper.pid()).unwrap();
    assert_eq!(group.processes().unwrap(), [sleeper.pid()]);
    assert_eq!(enforcer.sample(&name).unwrap().processes, 1);
    assert!(enforcer.is_populated(&name).unwrap());
    assert_eq!(nice_of(sleeper.pid()), 6);
    enforcer.change(&name, &Knobs::default()).unwrap();
    assert_eq!(nice_of(sleeper.pid()), 0);
    let report = enforcer.remove(&name).unwrap();
    assert_eq!(report.problems, <[String; 0]>::default());
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    assert_eq!(nice_of(sleeper.pid()), 0);
    assert_same(&before, &host.snapshot());
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
        enforcer.add(&weighed, "").unwrap();
        assert_eq!(inner.read_weight().unwrap(), 70);
        enforcer.remove(&weighed.name).unwrap();
        assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
        assert!(!Path::new(&inner.cpu_file("cpu.weight")).exists());
        assert_same(&before, &host.snapshot());
        // Processes in inner cgroups do not matter, because cpu is a threaded controller.
        let sleeper = host.start_in(&middle, ["sleep", "600"]);
        let mut enforcer = start(&host);
        enforcer.add(&weighed, "").unwrap();
        assert_eq!(inner.read_weight().unwrap(), 70);
        assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
        sleeper.stop();
        assert_same(&before, &host.snapshot());
    }
}
