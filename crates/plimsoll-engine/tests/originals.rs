//! The enforcer on a kernel in memory, mostly in orders of events in which values and nice levels of
//! others were lost or overwritten once. The whole owner runs on it in plimsoll-daemon.

#![allow(clippy::unwrap_used)]

mod kernel;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use plimsoll_cgroupfs::simulated::{self, PromiseWatch, Write};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, Version};
use plimsoll_engine::cgroup::{CgroupEnforcer, check_place};
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::{Headroom, HeadroomDemand};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::TaskId;
use plimsoll_engine::undo::{self, UndoReport};

use kernel::{
    EIO, Machine, fork, nice, others_create, others_move, others_remove, others_write, place,
    refused, text,
};

/// An enforcer on a kernel in memory, which goes with it.
struct Rig(Option<CgroupEnforcer>, Machine);

impl Rig {
    fn new() -> Self {
        Self::on(Version::V2)
    }

    fn on(version: Version) -> Self {
        let mut rig = Self(None, Machine::new(version));
        rig.start();
        rig
    }

    /// Starts an enforcer in the place of the present one, whose owner is killed.
    fn start(&mut self) {
        self.kill();
        let (enforcer, report) = CgroupEnforcer::adopting(&self.hierarchy(), &runtime()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        self.0 = Some(enforcer);
    }

    fn kill(&mut self) {
        self.0 = None;
    }

    fn hierarchy(&self) -> Arc<Hierarchy> {
        Arc::new(Hierarchy::at_folder(Path::new(simulated::MOUNT), self.1.0))
    }

    fn enforcer(&mut self) -> &mut CgroupEnforcer {
        self.0.as_mut().unwrap()
    }

    fn put(&mut self, name: &str, knobs: &str) {
        self.enforcer().put(&foreign(name, knobs)).unwrap();
    }

    /// Puts groups of others' cgroups at once; all are accepted.
    fn put_all(&mut self, groups: &[(&str, &str)]) {
        let groups: Vec<_> = groups
            .iter()
            .map(|(name, knobs)| foreign(name, knobs))
            .collect();
        let done = self.enforcer().put_all(&groups.iter().collect::<Vec<_>>());
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    }

    fn run(&mut self, name: &str, pid: i32, knobs: &str) {
        let policy = GroupPolicy {
            name: name.into(),
            ..own(pid, knobs)
        };
        self.enforcer().put(&policy).unwrap();
    }

    fn remove(&mut self, name: &str) {
        self.enforcer().remove(name).unwrap();
    }

    fn stop(&mut self) {
        assert_eq!(self.enforcer().undo().problems, [""; 0]);
    }
}

fn runtime() -> RuntimeFolder {
    RuntimeFolder::at(Path::new("/simulated/run/plimsoll"))
}

fn foreign(name: &str, knobs: &str) -> GroupPolicy {
    GroupPolicy {
        name: name.into(),
        first: None,
        subject: String::new(),
        knobs: serde_json::from_str(knobs).unwrap(),
        is_scheduled: false,
    }
}

fn own(pid: i32, knobs: &str) -> GroupPolicy {
    GroupPolicy {
        first: Some(TaskId::of(pid).unwrap()),
        ..foreign("job", knobs)
    }
}

fn weight(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn others_start(pid: i32, path: &str, level: i32) {
    simulated::with(|kernel| {
        kernel.tasks().start_in(pid, Path::new(path));
        kernel.tasks().set_nice(pid, level).unwrap();
    });
}

#[test]
fn tasks_of_a_recreated_cgroup_keep_their_level() {
    for (knobs, during) in [
        (None, 5),
        (Some(r#"{"nice": "7"}"#), 7),
        (Some(r#"{"weight": "50"}"#), 5),
    ] {
        let mut rig = Rig::new();
        rig.put("/s", r#"{"nice": "5"}"#);
        rig.kill();
        // The other cgroup has a process of the same level.
        others_move(5, "d");
        others_remove("s");
        others_create("s");
        others_start(9, "s", 5);
        rig.start();
        match knobs {
            Some(knobs) => rig.put("/s", knobs),
            None => drop(rig.enforcer().finish_adoption(&BTreeSet::new())),
        }
        assert_eq!(nice([9]), [during]);
        rig.stop();
        assert_eq!(nice([9, 5]), [5, 0]);
    }
}

#[test]
fn a_renamed_cgroup_has_its_first_values_in_the_end_and_in_a_group_of_its_new_name() {
    let rename = |from: &str, to: &str| {
        simulated::with(|kernel| kernel.others_rename(Path::new(from), Path::new(to))).unwrap();
    };
    let ours = r#"{"weight": "50", "nice": "5", "quota": "90ms/100ms"}"#;
    // The owner may be dead meanwhile, and another cgroup may take the old name.
    for (dies, is_taken, again) in [
        (false, false, false),
        (false, true, true),
        (true, false, false),
        (true, true, true),
    ] {
        let mut rig = Rig::on(Version::V1);
        others_write("s/cpu.shares", "300");
        rig.put("/s", ours);
        fork(5, 6);
        if dies {
            rig.kill();
        }
        rename("s", "t");
        if is_taken {
            rename("d", "s");
        }
        if dies {
            rig.start();
        }
        if again {
            rig.put("/t", r#"{"weight": "70"}"#);
            assert_eq!(text("t/cpu.cfs_quota_us"), weight("-1"));
            assert_eq!(nice([5, 6]), [0, 0]);
            rig.remove("/t");
        } else if !dies {
            rig.remove("/s");
        }
        rig.stop();
        assert_eq!(text("t/cpu.shares"), weight("300"));
        assert_eq!(text("t/cpu.cfs_quota_us"), weight("-1"));
        assert_eq!(nice([5, 6]), [0, 0]);
    }
}

#[test]
fn a_level_that_somebody_else_has_set_goes_into_the_next_group() {
    for (knobs, during) in [(r#"{"weight": "50"}"#, 10), (r#"{"nice": "12"}"#, 12)] {
        let mut rig = Rig::new();
        rig.run("a", 5, r#"{"nice": "5"}"#);
        simulated::with(|kernel| kernel.tasks().set_nice(5, 10).unwrap());
        rig.run("b", 5, knobs);
        assert_eq!(nice([5]), [during]);
        // The level of others may be reported.
        rig.enforcer().undo();
        assert_eq!(nice([5]), [10]);
    }
}

#[test]
fn cgroups_of_others_inside_of_a_group_outlive_a_change_that_would_build_it_anew() {
    for (version, file, ours, value) in [
        (Version::V1, "cpu.cfs_quota_us", "50000", "10000"),
        (Version::V2, "cpu.max", "50000 100000", "10000 100000"),
    ] {
        let mut rig = Rig::on(version);
        let inner = "plimsoll/job/in\u{e4}ner";
        let limit = format!("{inner}/{file}");
        rig.run("job", 5, r#"{"quota": "90ms/100ms"}"#);
        others_create(inner);
        others_move(5, inner);
        if version == Version::V2 {
            others_write("plimsoll/job/cgroup.subtree_control", "+cpu");
        }
        others_write(&limit, value);
        let writes = || simulated::with(|kernel| kernel.nr_kernel_writes());
        let before = writes();
        for knobs in [
            r#"{"quota": "90ms/100ms", "cap": "10%"}"#,
            r#"{"quota": "90ms/100ms", "class": "batch"}"#,
            r#"{"quota": "90ms/100ms", "cap": "10%", "per-task": true}"#,
        ] {
            let refused = rig.enforcer().put(&own(5, knobs)).unwrap_err().to_string();
            assert!(refused.contains(&format!(" /{inner}, ")), "{refused}");
            assert_eq!(writes(), before, "{knobs}");
        }
        // Values alone change in place.
        let in_place = r#"{"quota": "50ms/100ms", "nice": "5"}"#;
        rig.enforcer().put(&own(5, in_place)).unwrap();
        assert_eq!(text(&format!("plimsoll/job/{file}")), weight(ours));
        assert_eq!((text(&limit), nice([5])), (weight(value), [5]));
        assert_eq!(place(5), inner);
        rig.remove("job");
        assert_eq!((place(5), nice([5])), ("s".to_owned(), [0]));
        rig.stop();
    }
}

#[test]
fn a_process_whose_cgroup_is_gone_stays_in_the_one_around_it() {
    let mut rig = Rig::new();
    others_create("s/1");
    others_write("cgroup.subtree_control", "+cpu");
    others_move(5, "s/1");
    rig.run("job", 5, r#"{"cap": "10%"}"#);
    // The one around it takes no process itself any more.
    others_remove("s/1");
    others_create("s/2");
    others_write("s/cgroup.subtree_control", "+cpu");
    fork(5, 6);
    let UndoReport {
        notes, problems, ..
    } = rig.enforcer().undo();
    assert_eq!(problems, [""; 0]);
    assert_eq!([5, 6].map(place), ["s/plimsoll-left"; 2]);
    let [note] = &*notes else { panic!("{notes:?}") };
    assert!(note.contains("/s/plimsoll-left: stays, for"), "{note}");
}

#[test]
fn a_process_in_the_parent_of_groups_is_named() {
    // The controller may be on already.
    for control in ["", "+cpu"] {
        let mut rig = Rig::new();
        others_create("plimsoll");
        if !control.is_empty() {
            others_write("cgroup.subtree_control", control);
            others_write("plimsoll/cgroup.subtree_control", control);
        }
        others_start(7, "plimsoll", 0);
        let refused = rig.enforcer().put(&own(5, r#"{"cap": "10%"}"#));
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("/plimsoll/: holds process 7 itself"),
            "{refused}"
        );
        assert!(refused.ends_with("move its processes into another cgroup first"));
        assert_eq!(place(5), "s");
        assert!(simulated::with(|kernel| kernel.broken.is_empty()));
        others_write("d/cgroup.procs", "7");
        rig.run("job", 5, r#"{"cap": "10%"}"#);
        rig.stop();
        assert_eq!((&*place(5), &*place(7)), ("s", "d"));
    }
}

#[test]
fn a_frozen_process_is_not_thawed_by_a_move() {
    // Its own cgroup, and one above it.
    for (frozen, at) in [("s", "s"), ("d", "d/e")] {
        let mut rig = Rig::new();
        others_create("d/e");
        others_start(7, at, 0);
        others_write(&format!("{frozen}/cgroup.freeze"), "1");
        let refused = rig.enforcer().put(&own(7, r#"{"cap": "10%"}"#));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.starts_with("7: is frozen in /"), "{refused}");
        assert!(refused.ends_with(&format!("on the cgroup /{frozen}")));
        assert_eq!(place(7), at);
        others_write(&format!("{frozen}/cgroup.freeze"), "0");
        rig.enforcer().put(&own(7, r#"{"cap": "10%"}"#)).unwrap();
        assert_eq!(place(7), "plimsoll/job");
        rig.stop();
    }
}

#[test]
fn a_frozen_group_is_changed_in_place_or_not_at_all() {
    for frozen in ["plimsoll/job", "plimsoll"] {
        let mut rig = Rig::new();
        rig.run("job", 5, r#"{"quota": "90ms/100ms"}"#);
        others_write(&format!("{frozen}/cgroup.freeze"), "1");
        let writes = || simulated::with(|kernel| kernel.nr_kernel_writes());
        let before = writes();
        let anew = own(5, r#"{"class": "batch"}"#);
        let refused = rig.enforcer().put(&anew).unwrap_err().to_string();
        let start = format!("group `job`: is frozen in /{frozen}, ");
        assert!(refused.starts_with(&start), "{refused}");
        assert_eq!(writes(), before);
        rig.run("job", 5, r#"{"quota": "50ms/100ms"}"#);
        assert_eq!(text("plimsoll/job/cpu.max"), weight("50000 100000"));
        others_write(&format!("{frozen}/cgroup.freeze"), "0");
        rig.enforcer().put(&anew).unwrap();
        rig.stop();
    }
}

#[test]
fn an_orphan_has_the_level_of_its_groups_first_process() {
    let mut rig = Rig::new();
    others_start(8, "s", 3);
    rig.run("h", 8, r#"{"nice": "10"}"#);
    rig.run("g", 5, r#"{"weight": "50"}"#);
    rig.enforcer().add_process("g", 8).unwrap();
    assert_eq!(nice([5, 8]), [0, 3]);
    rig.run("g", 5, r#"{"weight": "50", "nice": "5"}"#);
    fork(5, 6);
    fork(6, 7);
    simulated::with(|kernel| [6, 5].map(|pid| kernel.end(pid)));
    assert_eq!(nice([7]), [5]);
    rig.stop();
    assert_eq!(nice([7, 8]), [0, 3]);
}

#[test]
fn a_child_has_the_level_of_a_parent_that_was_in_another_group_since() {
    let mut rig = Rig::new();
    others_start(8, "s", 3);
    others_start(9, "s", 0);
    rig.put("/s", r#"{"nice": "7"}"#);
    fork(8, 6);
    rig.run("b", 8, r#"{"weight": "50"}"#);
    rig.remove("b");
    rig.stop();
    assert_eq!(nice([6, 8]), [3, 3]);
}

#[test]
fn tasks_of_a_rebuilt_group_have_their_first_level_in_the_end() {
    for last in [r#"{"nice": "7", "quota": "9ms/100ms"}"#, r#"{"cap": "5%"}"#] {
        let mut rig = Rig::new();
        rig.run("a", 5, r#"{"nice": "5"}"#);
        fork(5, 6);
        // Each of them has other cgroups than the one before.
        rig.run(
            "a",
            5,
            r#"{"nice": "5", "quota": "20ms/100ms", "cap": "10%"}"#,
        );
        rig.start();
        rig.run("a", 5, last);
        rig.remove("a");
        assert_eq!(nice([5, 6]), [0; 2]);
    }
}

#[test]
fn a_value_of_others_after_an_undo_that_left_something_is_put_back() {
    let mut nr_left = 0;
    for after in 0..8 {
        let mut rig = Rig::new();
        rig.put("/d", r#"{"weight": "50"}"#);
        rig.run("a", 5, r#"{"weight": "50"}"#);
        rig.kill();
        let report = refused(after, || undo::recover(&runtime()).unwrap());
        if report.problems.is_empty() || text("d/cpu.weight") != weight("100") {
            continue;
        }
        nr_left += 1;
        others_write("d/cpu.weight", "300");
        rig.start();
        rig.put("/d", r#"{"weight": "60"}"#);
        rig.enforcer()
            .finish_adoption(&BTreeSet::from(["/d".to_owned()]));
        rig.remove("/d");
        assert_eq!(text("d/cpu.weight"), weight("300"), "{after}");
    }
    assert!(nr_left > 0);
}

#[test]
fn a_group_of_our_own_is_no_cgroup_of_its_name() {
    let mut rig = Rig::new();
    rig.put("/s", r#"{"weight": "50"}"#);
    assert_eq!(
        ["/s", "s"].map(|name| rig.enforcer().knows(name)),
        [true, false]
    );
    assert!(rig.enforcer().remove("s").is_err());
    rig.stop();
}

#[test]
fn a_value_of_others_that_was_ours_once_stays() {
    let mut rig = Rig::new();
    rig.put("/d", r#"{"weight": "50"}"#);
    rig.put("/d", r#"{"weight": "60"}"#);
    others_write("d/cpu.weight", "50");
    rig.remove("/d");
    assert_eq!(text("d/cpu.weight"), weight("50"));
}

#[test]
fn what_is_there_already_is_not_written_and_put_back_nevertheless() {
    let mut rig = Rig::new();
    others_write("cgroup.subtree_control", "+cpu");
    others_write("d/cpu.weight", "50");
    others_write("d/cpu.max", "70000 100000");
    others_write("d/cpu.max.burst", "30000");
    let writes = || simulated::with(|kernel| kernel.nr_kernel_writes());
    let before = writes();
    let knobs = r#"{"class": "normal", "weight": "50", "quota": "70ms/100ms", "burst": "30ms"}"#;
    rig.put("/d", knobs);
    assert_eq!(writes(), before);
    rig.put("/d", r#"{"weight": "60", "quota": "20ms/100ms"}"#);
    rig.stop();
    assert_eq!(text("d/cpu.weight"), weight("50"));
    assert_eq!(text("d/cpu.max"), weight("70000 100000"));
    assert_eq!(text("d/cpu.max.burst"), weight("30000"));
}

#[test]
fn a_value_of_others_stays_when_its_knob_is_asked_for_no_more() {
    let mut rig = Rig::new();
    rig.put("/d", r#"{"quota": "20ms/100ms", "weight": "50"}"#);
    for (file, theirs, knobs) in [
        ("d/cpu.weight", "300", r#"{"quota": "20ms/100ms"}"#),
        ("d/cpu.max", "50000 100000", r#"{"nice": "5"}"#),
    ] {
        others_write(file, theirs);
        rig.put("/d", knobs);
        assert_eq!(text(file), weight(theirs));
    }
}

#[test]
fn the_idle_mark_of_others_is_put_back_and_takes_the_weight_away() {
    let mut rig = Rig::new();
    let weighed = foreign("/d", r#"{"weight": "50"}"#);
    rig.enforcer().put(&weighed).unwrap();
    others_write("d/cpu.idle", "1");
    let changed = rig.enforcer().audit("/d").unwrap();
    assert!(
        changed.contains(&"/d: cpu.idle was changed to `1`".to_owned()),
        "{changed:?}"
    );
    rig.enforcer().put(&weighed).unwrap();
    assert_eq!(
        (text("d/cpu.idle"), text("d/cpu.weight")),
        (weight("0"), weight("50"))
    );
    rig.stop();
    assert_eq!(text("d/cpu.idle"), weight("1"));
    // One that is idle at first stays so, and has no weight.
    rig.start();
    let refused = rig.enforcer().put(&weighed).unwrap_err().to_string();
    assert!(
        refused.contains("an idle cgroup has no weight"),
        "{refused}"
    );
    rig.put("/d", r#"{"class": "normal"}"#);
    assert_eq!(text("d/cpu.idle"), weight("0"));
    rig.stop();
    assert_eq!(text("d/cpu.idle"), weight("1"));
}

#[test]
fn a_controller_that_others_switch_off_is_told_and_a_cgroup_that_goes_is_not() {
    for (knobs, is_removed) in [
        (r#"{"class": "batch"}"#, true),
        (r#"{"weight": "50", "quota": "20ms/100ms"}"#, false),
    ] {
        let mut rig = Rig::new();
        rig.put("/d", knobs);
        others_write("cgroup.subtree_control", "-cpu");
        let told = rig.enforcer().audit("/d").unwrap();
        let [told] = &*told else { panic!("{told:?}") };
        assert!(
            told.starts_with("/d: the cpu controller was switched off in "),
            "{told}"
        );
        // On again it has no limits.
        others_write("cgroup.subtree_control", "+cpu");
        assert!(!rig.enforcer().audit("/d").unwrap().is_empty());
        others_write("cgroup.subtree_control", "-cpu");
        match is_removed {
            true => {
                others_remove("d");
                assert!(rig.enforcer().audit("/d").unwrap_err().is_gone());
            }
            // The enforcer need not put back what has gone with it.
            false => rig.stop(),
        }
    }
}

#[test]
fn a_limit_that_others_set_where_we_enabled_the_controller_outlives_the_last_group() {
    for (path, value, above) in [
        ("d/cpu.max", "50000 100000", "cgroup"),
        ("d/cpu.max", "max 50000", "cgroup"),
        ("d/cpu.max.burst", "5000", "cgroup"),
        ("d/cpu.weight", "300", "cgroup"),
        ("d/cpu.idle", "1", "cgroup"),
        // A controller that stays on keeps those above it.
        ("d/e/f/cpu.max", "50000 100000", "d/e"),
    ] {
        let mut rig = Rig::new();
        for made in ["d/e", "d/e/f"] {
            others_create(made);
        }
        rig.put("/d/e/f", r#"{"weight": "50"}"#);
        others_write(path, value);
        // The owner has not failed.
        let UndoReport {
            notes, problems, ..
        } = rig.enforcer().undo();
        assert_eq!(problems, [""; 0]);
        let [note] = &*notes else { panic!("{notes:?}") };
        let is_named = |part: &str| note.contains(part);
        let names = [
            format!("{path} to"),
            format!("{above}/cgroup.subtree_control"),
        ];
        assert!(names.iter().all(|name| is_named(name)), "{note}");
        let control = text("cgroup.subtree_control");
        assert_eq!((text(path), control), (weight(value), weight("cpu")));
        let below = if above == "cgroup" { "" } else { "cpu" };
        assert_eq!(text("d/cgroup.subtree_control"), weight(below), "{path}");
        // It is not ours any more.
        rig.start();
        rig.put("/s", r#"{"weight": "50"}"#);
        rig.stop();
        let control = text("cgroup.subtree_control");
        assert_eq!((text(path), control), (weight(value), weight("cpu")));
    }
}

#[test]
fn a_controller_that_the_kernel_refused_us_stays_on_once_others_have_enabled_it() {
    for is_own in [true, false] {
        let mut rig = Rig::new();
        let policy = match is_own {
            true => own(5, r#"{"weight": "50"}"#),
            false => foreign("/d", r#"{"weight": "50"}"#),
        };
        // The first write enables the controller.
        let put = refused(0, || rig.enforcer().put(&policy));
        assert!(put.is_err() && text("d/cpu.weight").is_none());
        others_write("cgroup.subtree_control", "+cpu");
        rig.stop();
        let control = text("cgroup.subtree_control");
        assert_eq!(control.as_deref(), Some("cpu"), "{is_own}");
    }
}

#[test]
fn an_external_change_is_reported_again_after_it_was_taken_back() {
    let mut rig = Rig::new();
    rig.put("/d", r#"{"weight": "50"}"#);
    for _ in 0..2 {
        others_write("d/cpu.weight", "300");
        assert_eq!(rig.enforcer().audit("/d").unwrap().len(), 1);
        assert!(rig.enforcer().audit("/d").unwrap().is_empty());
        others_write("d/cpu.weight", "50");
        assert!(rig.enforcer().audit("/d").unwrap().is_empty());
    }
}

#[test]
fn a_value_is_ours_though_the_journal_was_rewritten_before_it_was_accepted() {
    let mut rig = Rig::on(Version::V1);
    for path in ["p", "p/c"] {
        others_create(path);
    }
    simulated::with(|kernel| {
        for group in 0..1_000 {
            let path = format!("x{group}");
            kernel.others_create(Path::new(&path)).unwrap();
            for pid in 0..8 {
                let pid = 10_000 + 8 * group + pid;
                kernel.tasks().start_in(pid, Path::new(&path));
            }
        }
    });
    others_write("p/cpu.cfs_quota_us", "50000");
    rig.put("/p/c", r#"{"quota": "20ms/100ms"}"#);
    rig.start();
    // The kernel refuses the first until the last is in force.
    let mut all = vec![("/p/c", r#"{"quota": "60ms/100ms"}"#)];
    let many = r#"{"quota": "60ms/100ms", "weight": "50", "class": "normal", "nice": "5"}"#;
    let names: Vec<String> = (0..1_000).map(|group| format!("/x{group}")).collect();
    all.extend(names.iter().map(|name| (&**name, many)));
    all.push(("/p", r#"{"quota": "80ms/100ms"}"#));
    rig.put_all(&all);
    assert_eq!(text("p/c/cpu.cfs_quota_us").as_deref(), Some("60000"));
    rig.remove("/p/c");
    assert_eq!(text("p/c/cpu.cfs_quota_us").as_deref(), Some("-1"));
}

#[test]
fn a_failed_change_makes_no_value_of_others_ours() {
    let mut nr_refused = 0;
    let weighed = r#"{"quota": "30ms/100ms", "weight": "60"}"#;
    let capped = r#"{"quota": "30ms/100ms", "weight": "50", "soft-cap": "5%"}"#;
    for (before, knobs, theirs) in [
        (r#"{"weight": "50"}"#, weighed, "60"),
        (r#"{"weight": "50"}"#, capped, "300"),
        (r#"{"quota": "20ms/100ms"}"#, weighed, "300"),
    ] {
        for after in 0..6 {
            let mut rig = Rig::new();
            rig.put("/d", before);
            let changed = foreign("/d", knobs);
            if refused(after, || rig.enforcer().put(&changed)).is_ok() {
                continue;
            }
            nr_refused += 1;
            others_write("d/cpu.weight", theirs);
            if !before.contains("weight") {
                rig.put("/d", r#"{"quota": "30ms/100ms", "weight": "70"}"#);
            }
            rig.remove("/d");
            assert_eq!(text("d/cpu.weight"), weight(theirs), "{after}");
        }
    }
    assert!(nr_refused > 2);
}

#[test]
fn a_refused_value_is_known_to_the_next_group_beside_a_recreated_cgroup() {
    let quota = || text("p/c/cpu.cfs_quota_us");
    let mut rig = Rig::on(Version::V1);
    for path in ["p", "p/c"] {
        others_create(path);
    }
    others_write("p/c/cpu.cfs_quota_us", "50000");
    rig.put("/p/c", r#"{"quota": "20ms/100ms"}"#);
    rig.put("/d", r#"{"weight": "50"}"#);
    // The kernel refuses the value of before, until others have lifted this limit.
    others_write("p/cpu.cfs_quota_us", "30000");
    rig.remove("/p/c");
    assert_eq!(quota().as_deref(), Some("20000"));
    others_write("p/cpu.cfs_quota_us", "-1");
    rig.kill();
    others_remove("d");
    others_create("d");
    rig.start();
    rig.put_all(&[
        ("/p/c", r#"{"quota": "10ms/100ms"}"#),
        ("/d", r#"{"weight": "60"}"#),
    ]);
    rig.stop();
    assert_eq!(quota().as_deref(), Some("50000"));
}

#[test]
fn nested_quotas_are_lowered_and_raised_in_one_go_and_by_undo() {
    let mut rig = Rig::on(Version::V1);
    let names = ["d", "d/1", "d/1/2"];
    names[1..].iter().for_each(|name| others_create(name));
    for name in names {
        others_write(&format!("{name}/cpu.cfs_quota_us"), "50000");
    }
    let quotas = || names.map(|name| quota_of(Version::V1, name).unwrap());
    for ms in [[20; 3], [90, 80, 70], [20, 15, 10]] {
        let knobs = ms.map(|ms| format!(r#"{{"quota": "{ms}ms/100ms"}}"#));
        rig.put_all(&[0, 1, 2].map(|level| (names[level], &*knobs[level])));
        assert_eq!(quotas(), ms.map(|ms| (ms * 1000).to_string()));
    }
    // A refusal that no other change helps stays one.
    let more = foreign("d/1", r#"{"quota": "95ms/100ms"}"#);
    rig.enforcer().put(&more).unwrap_err();
    rig.stop();
    assert_eq!(quotas(), ["50000"; 3]);
}

#[test]
fn an_inner_group_has_its_own_level_also_where_it_begins_with_one_around_it() {
    let mut rig = Rig::on(Version::V1);
    others_create("s/1");
    others_start(9, "s/1", 0);
    rig.put_all(&[("/s", r#"{"nice": "7"}"#), ("/s/1", r#"{"nice": "0"}"#)]);
    assert_eq!(nice([5, 9]), [7, 0]);
    rig.put("/s", r#"{"nice": "3"}"#);
    assert_eq!(nice([5, 9]), [3, 0]);
    // The inner one loses its level at once, or is not adopted.
    rig.put_all(&[("/s", r#"{"nice": "5"}"#), ("/s/1", r#"{"weight": "50"}"#)]);
    assert_eq!(nice([5, 9]), [5, 5]);
    rig.put("/s/1", r#"{"nice": "9"}"#);
    rig.start();
    rig.put("/s", r#"{"nice": "7"}"#);
    let wanted = BTreeSet::from(["/s".to_owned()]);
    assert_eq!(rig.enforcer().finish_adoption(&wanted).problems, [""; 0]);
    assert_eq!(nice([5, 9]), [7, 7]);
    rig.stop();
    assert_eq!(nice([5, 9]), [0, 0]);
}

#[test]
fn an_inner_group_keeps_its_level_though_the_kernel_refuses_a_change_of_one_around_it() {
    for has_outer in [false, true] {
        let mut rig = Rig::on(Version::V1);
        for made in ["d/1", "d/1/2"] {
            others_create(made);
        }
        others_write("d/cpu.cfs_quota_us", "50000");
        others_start(9, "d/1/2", 0);
        if has_outer {
            rig.put("/d/1", r#"{"nice": "3"}"#);
        }
        // A refused quota is tried again after the other groups.
        let outer = foreign("/d/1", r#"{"nice": "7", "quota": "95ms/100ms"}"#);
        let inner = foreign("/d/1/2", r#"{"nice": "5"}"#);
        let done = rig.enforcer().put_all(&[&outer, &inner]);
        assert!(done[0].is_err() && done[1].is_ok(), "{done:?}");
        assert_eq!(nice([9]), [5], "{has_outer}");
        if has_outer {
            rig.remove("/d/1");
        }
        assert_eq!(nice([9]), [5], "{has_outer}");
        rig.stop();
        assert_eq!(nice([9]), [0]);
    }
}

#[test]
fn tasks_that_others_moved_out_of_a_removed_cgroup_keep_the_level_of_their_new_group() {
    for names in [["/d", "/s"], ["/s", "/d"]] {
        let mut rig = Rig::new();
        for name in names {
            rig.put(name, r#"{"nice": "5"}"#);
        }
        rig.kill();
        others_move(5, "d");
        others_remove("s");
        others_create("s");
        rig.start();
        rig.put_all(&names.map(|name| (name, r#"{"nice": "5"}"#)));
        assert_eq!(nice([5]), [5]);
        rig.stop();
        assert_eq!(nice([5]), [0]);
    }
}

#[test]
fn a_level_that_was_refused_comes_with_the_next_change() {
    let mut rig = Rig::new();
    rig.run("a", 5, r#"{"nice": "5"}"#);
    others_start(9, "s", 0);
    // The second write, after the move.
    let added = refused(1, || rig.enforcer().add_process("a", 9));
    assert!(added.is_err());
    rig.run("a", 5, r#"{"nice": "5"}"#);
    assert_eq!(nice([9]), [5]);
    rig.stop();
    assert_eq!(nice([5, 9]), [0; 2]);
}

#[test]
fn a_process_that_has_the_pid_of_the_one_meant_stays_where_it_is() {
    let mut rig = Rig::new();
    let now = TaskId::of(5).unwrap();
    let earlier = TaskId {
        start_time: now.start_time + 1,
        ..now
    };
    let policy = GroupPolicy {
        first: Some(earlier),
        ..foreign("job", r#"{"quota": "1cpus"}"#)
    };
    let refused = rig.enforcer().put(&policy).unwrap_err().to_string();
    assert!(refused.contains("no such process"), "{refused}");
    assert_eq!(place(5), "s");
}

fn quota_of(version: Version, cgroup: &str) -> Option<String> {
    let file = match version {
        Version::V1 => "cpu.cfs_quota_us",
        Version::V2 => "cpu.max",
    };
    text(&format!("{cgroup}/{file}"))
}

#[test]
fn a_limit_comes_and_goes_without_a_move_of_processes() {
    for version in [Version::V1, Version::V2] {
        let mut rig = Rig::on(version);
        rig.run("job", 5, "{}");
        let before = place(5);
        let unlimited = quota_of(version, &before);
        for knobs in [r#"{"quota": "1cpus"}"#, "{}", r#"{"quota": "2cpus"}"#, "{}"] {
            rig.run("job", 5, knobs);
            assert_eq!(place(5), before, "{knobs}");
            let is_unlimited = quota_of(version, &before) == unlimited;
            assert_eq!(is_unlimited, knobs == "{}", "{knobs}");
            // The next owner takes the group over as it is.
            rig.start();
        }
        rig.run("job", 5, "{}");
        assert_eq!(place(5), before);
        rig.stop();
        assert_eq!(place(5), "s");
    }
}

#[test]
fn a_limit_of_others_on_an_own_cgroup_without_one_stays() {
    let mut rig = Rig::new();
    rig.run("job", 5, r#"{"weight": "50"}"#);
    others_write("plimsoll/job/cpu.max", "10000 100000");
    rig.run("job", 5, r#"{"weight": "60"}"#);
    rig.start();
    rig.run("job", 5, r#"{"weight": "70"}"#);
    let quota = quota_of(Version::V2, "plimsoll/job");
    assert_eq!(quota.as_deref(), Some("10000 100000"));
    // The idle mark of a soft cap is its loop's: no change is refused beside it.
    rig.run("soft", 5, r#"{"soft-cap": "5%"}"#);
    others_write("plimsoll-soft-soft/cpu.idle", "1");
    rig.run("soft", 5, r#"{"soft-cap": "5%", "quota": "20ms/100ms"}"#);
}

/// On v1 the cgroup of a task refuses a limit around it that is below its own.
#[test]
fn a_quota_comes_to_a_group_whose_tasks_have_caps_above_it() {
    let mut rig = Rig::on(Version::V1);
    rig.run("job", 5, r#"{"cap": "50%", "per-task": true}"#);
    assert_eq!(quota_of(Version::V1, "plimsoll/job").as_deref(), Some("-1"));
    // As the loop does for each task.
    others_create("plimsoll/job/task-5");
    others_write("plimsoll/job/task-5/cpu.cfs_quota_us", "50000");
    let with_quota = r#"{"cap": "50%", "per-task": true, "quota": "20ms/100ms"}"#;
    rig.run("job", 5, with_quota);
}

/// A fault at one of the writes of a change.
fn inject(fault: usize, after: u64) {
    simulated::with(|kernel| match fault {
        0 | 1 => {
            kernel.faults.death_in = Some(after);
            kernel.faults.is_panic = fault == 1;
        }
        2 => kernel.faults.refusal_in = Some((Write::Kernel, after, EIO)),
        _ => kernel.faults.refusal_in = Some((Write::Disk, after, libc::ENOSPC)),
    });
}

/// Changes a group from the first knobs to the second with a fault, and has the next owner want the
/// third. Returns whether the fault has come.
fn change_with_a_fault(version: Version, knobs: [usize; 3], fault: usize, after: u64) -> bool {
    let [
        (first, first_ppm, _),
        (second, second_ppm, _),
        (third, third_ppm, level),
    ] = knobs.map(|it| OWN[it]);
    let what = format!("{version:?}: {first} to {second} to {third}, fault {fault} after {after}");
    let loosest = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.max(b));
    let watch = |rate_max_ppm| {
        let watch = PromiseWatch {
            pid: 5,
            rate_max_ppm,
            is_idle: false,
        };
        simulated::with(|kernel| kernel.watches = vec![watch]);
    };
    let mut rig = Rig::on(version);
    rig.run("job", 5, first);
    // It inherits the nice level.
    fork(5, 6);
    watch(loosest(first_ppm, second_ppm));
    inject(fault, after);
    let policy = own(5, second);
    let done = catch_unwind(AssertUnwindSafe(|| rig.enforcer().put(&policy)));
    let has_come = match fault {
        0 | 1 => done.is_err(),
        _ => simulated::with(|kernel| kernel.faults.refusal_in.is_none()),
    };
    rig.kill();
    simulated::with(|kernel| {
        assert!(kernel.broken.is_empty(), "{what}: {:?}", kernel.broken);
        kernel.revive();
        kernel.faults.refusal_in = None;
    });
    watch(loosest(loosest(first_ppm, second_ppm), third_ppm));
    rig.start();
    rig.run("job", 5, third);
    simulated::with(|kernel| {
        assert!(kernel.broken.is_empty(), "{what}: {:?}", kernel.broken);
        assert_eq!(kernel.rate_ppm(5), third_ppm, "{what}");
        kernel.watches.clear();
    });
    assert_eq!(nice([5, 6]), [level; 2], "{what}");
    assert_eq!(rig.enforcer().audit("job").unwrap(), [""; 0], "{what}");
    rig.stop();
    assert_eq!(place(5), "s", "{what}");
    assert_eq!(nice([5, 6]), [0; 2], "{what}");
    has_come
}

/// Knobs of an own group, and the rate and the nice level that they leave to it.
const OWN: [(&str, Option<u64>, i32); 8] = [
    ("{}", None, 0),
    (r#"{"quota": "20ms/100ms"}"#, Some(200_000), 0),
    (
        r#"{"quota": "90ms/100ms", "burst": "50ms"}"#,
        Some(900_000),
        0,
    ),
    (r#"{"cap": "50%", "nice": "3"}"#, Some(500_000), 3),
    (
        r#"{"cap": "50%", "quota": "20ms/100ms", "nice": "5"}"#,
        Some(200_000),
        5,
    ),
    (r#"{"weight": "50"}"#, None, 0),
    (
        r#"{"class": "batch", "quota": "20ms/100ms"}"#,
        Some(200_000),
        0,
    ),
    (r#"{"soft-cap": "20%", "cap": "40%"}"#, Some(400_000), 0),
];

#[test]
fn no_fault_within_a_change_of_an_own_group_lifts_a_limit_or_leaves_a_level() {
    let mut nr_faults = 0;
    for version in [Version::V1, Version::V2] {
        for (first, second) in (0..OWN.len()).flat_map(|it| (0..OWN.len()).map(move |b| (it, b))) {
            let third = (first + 3 * second) % OWN.len();
            for fault in 0..4 {
                let comes =
                    |after| change_with_a_fault(version, [first, second, third], fault, after);
                nr_faults += (0..).take_while(|after| comes(*after)).count();
            }
        }
    }
    assert!(nr_faults > 1_000, "{nr_faults}");
}

/// Checks the quota that a runtime finds: runtimes size themselves by the quota of the cgroup of
/// their process, which must not be the one that the headroom controller writes.
#[test]
fn processes_of_a_group_with_headroom_find_its_quota_or_none() {
    let mut demand = HeadroomDemand::default();
    demand.add(Some(Headroom::Share(300_000)), None);
    let demanding = MachinePolicy {
        demand,
        bandwidth_slice: None,
    };
    for version in [Version::V1, Version::V2] {
        for (knobs, on_v2) in [
            (r#"{"class": "batch"}"#, None),
            (r#"{"class": "batch", "quota": "50ms/100ms"}"#, Some(50_000)),
        ] {
            let mut rig = Rig::on(version);
            rig.enforcer().set_machine(&demanding).unwrap();
            rig.run("g", 5, knobs);
            let place = CpuGroup::at(&rig.hierarchy(), place(5));
            let found = match place.read_cpu_max() {
                Ok(max) => max.quota_usec,
                // The controller is not switched on for this cgroup.
                Err(error) if error.is_gone() => None,
                Err(error) => panic!("{error}"),
            };
            let expected = on_v2.filter(|_| version == Version::V2);
            assert_eq!(found, expected, "{version:?} {knobs}");
            let limits: Vec<_> = std::iter::successors(place.parent(), CpuGroup::parent)
                .filter_map(|group| group.read_cpu_max().ok()?.quota_usec)
                .collect();
            assert!(limits.contains(&1_000), "{version:?} {knobs}: {limits:?}");
            rig.stop();
        }
    }
}

/// Checks that v2's threading is avoided: it would happen to a cgroup with processes where the
/// controller is enabled for the cgroups in it.
#[test]
fn a_controller_that_would_make_a_cgroup_threaded_is_refused() {
    // Process 5 is in the one, and none in the other.
    for (outer, has_process) in [("s", true), ("d", false)] {
        let mut rig = Rig::new();
        let inner = format!("{outer}/job1");
        others_create(&inner);
        others_write("cgroup.subtree_control", "+cpu");
        let group = CpuGroup::at(&rig.hierarchy(), &inner);
        let policy = foreign(&inner, r#"{"quota": "50ms/100ms"}"#);
        let checked = check_place(&group, &policy.knobs).map_err(|error| error.to_string());
        let added = rig.enforcer().put(&policy);
        let added = added.map_err(|error| error.to_string());
        assert_eq!(added, checked);
        if has_process {
            assert!(added.unwrap_err().contains("holds process 5"));
            assert!(!group.parent().unwrap().children_enabled().unwrap());
        } else {
            assert_eq!(added, Ok(()));
        }
        assert!(simulated::with(|kernel| kernel.broken.is_empty()));
    }
}
