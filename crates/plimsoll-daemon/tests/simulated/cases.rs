//! Requests in an order, or at a moment, in which limits were lost or processes moved once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_cgroupfs::Version;
use plimsoll_cgroupfs::simulated::{self, Write};
use plimsoll_daemon::config::Config;
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, RunRequest, SetRequest};
use plimsoll_daemon::log::Log;
use plimsoll_daemon::service::{self, Service};
use plimsoll_daemon::state::State;
use plimsoll_engine::undo::UndoReport;

use crate::kernel::{
    EIO, Machine, fork, nice, others_create, others_move, others_remove, others_write, place,
    refused, text,
};
use crate::stock::{self, CONFIG, RUNTIME};

const QUOTA: &str = r#"{"quota": "20ms/100ms"}"#;
const PPM: Option<u64> = Some(200_000);
const ENOSPC: i32 = nix::errno::Errno::ENOSPC as i32;

/// An owner on a kernel in memory, which goes with it.
struct Rig(Option<Service>, Machine);

impl Rig {
    fn new() -> Self {
        Self::on(Version::V2)
    }

    fn on(version: Version) -> Self {
        let mut rig = Self(None, Machine::new(version));
        rig.start(None);
        rig
    }

    /// Starts an owner in the place of the present one, which dies.
    fn start(&mut self, config: Option<&str>) {
        self.0 = None;
        if let Some(text) = config {
            simulated::with(|kernel| kernel.disk().others_write(Path::new(CONFIG), text));
        }
        let options = stock::options(self.1.0, config.is_some(), Log::silent(), None);
        self.0 = Service::start(options).ok();
        assert!(self.0.is_some());
    }

    /// Stops the owner, which undoes its groups.
    fn stop(&mut self) {
        let mut service = self.0.take().unwrap();
        service.handle().stop();
        service.turn();
        assert_eq!(service.end().problems, [""; 0]);
    }

    fn ask(&mut self, request: Request, pid: Option<i32>) -> Answer {
        let service = self.0.as_mut().unwrap();
        let answer = service.handle().ask(request, pid.map(stock::handle_of));
        service.turn();
        answer.unwrap().try_recv().unwrap()
    }

    fn try_run(&mut self, name: &str, pid: i32) -> Answer {
        let run = RunRequest {
            name: name.into(),
            is_numbered: false,
            subject: String::new(),
            knobs: serde_json::from_str(QUOTA).unwrap(),
            choice: Choice::default(),
        };
        self.ask(Request::Run(Box::new(run)), Some(pid))
    }

    fn run(&mut self, name: &str, pid: i32) {
        let answer = self.try_run(name, pid);
        assert!(matches!(answer, Answer::Groups { .. }), "{answer:?}");
    }

    fn set(&mut self, pid: i32, knobs: &str) -> Answer {
        self.ask(set(&pid.to_string(), knobs), Some(pid))
    }

    fn reset(&mut self, target: &str) {
        let target = target.into();
        self.ask(Request::Reset { target }, None);
    }

    fn end(&mut self, name: &str) {
        let name = name.into();
        let release = true;
        self.ask(Request::End { name, release }, None);
    }

    fn state(&mut self) -> Box<State> {
        let (target, details) = (None, false);
        match self.ask(Request::Show { target, details }, None) {
            Answer::State(state) => state,
            answer => panic!("{answer:?}"),
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            simulated::with(|kernel| kernel.pass(Duration::from_secs(1)));
            self.0.as_mut().unwrap().turn();
        }
    }
}

const RULE: &str = r#"version = 1
[[group]]
name = "web"
match = { cgroup = "/d" }
quota = "20ms/100ms"
"#;

#[test]
fn owner_after_a_killed_daemon_has_its_file_until_restore_or_a_daemon_comes() {
    let mut rig = Rig::new();
    rig.start(Some(RULE));
    let is_limited = || text("d/cpu.max").as_deref() == Some("20000 100000");
    assert!(is_limited());
    rig.start(None);
    assert!(is_limited());
    let stopped = |rig: &mut Rig| {
        let mut service = rig.0.take().unwrap();
        service.handle().stop();
        service.turn();
        service.end()
    };
    // It leaves what it has to the next one.
    assert_eq!(stopped(&mut rig), UndoReport::default());
    assert!(is_limited());
    rig.start(None);
    let Answer::Restored(report) = rig.ask(Request::Restore, None) else {
        panic!("it is not restored");
    };
    assert_eq!(report.undone, ["/d"]);
    assert!(!is_limited());
    // A daemon that ends leaves nothing.
    rig.start(Some(RULE));
    stopped(&mut rig);
    rig.start(None);
    assert!(!is_limited());
}

#[test]
fn command_that_was_set_has_its_first_knobs_after_a_reset_or_restore() {
    let mut rig = Rig::new();
    rig.run("a", 5);
    for is_restore in [false, true] {
        for quota in [r#"{"quota": "50ms/100ms"}"#, r#"{"quota": "70ms/100ms"}"#] {
            rig.ask(set("a", quota), None);
            assert_ne!(rate_ppm(5), PPM);
        }
        match is_restore {
            true => {
                let undone = UndoReport {
                    undone: vec!["a".into()],
                    ..UndoReport::default()
                };
                assert_eq!(rig.ask(Request::Restore, None), Answer::Restored(undone));
            }
            false => rig.reset("a"),
        }
        assert_eq!(rate_ppm(5), PPM);
    }
    let target = "a".into();
    let nothing = Answer::Refused("a: nothing was `set` for it".into());
    assert_eq!(rig.ask(Request::Reset { target }, None), nothing);
}

#[test]
fn cgroup_that_a_command_makes_gets_no_limits_of_its_own() {
    let mut rig = Rig::new();
    rig.run("a", 5);
    others_create("plimsoll/a/b");
    let refused = "/plimsoll/a/b: is inside of group `a`, and gets no limits of its own; \
                   allowed: plimsoll set a";
    let answer = rig.ask(set("/plimsoll/a/b", QUOTA), None);
    assert_eq!(answer, Answer::Refused(refused.into()));
    let answer = rig.ask(set("/plimsoll/a", r#"{"quota": "50ms/100ms"}"#), None);
    assert!(matches!(answer, Answer::Groups { .. }), "{answer:?}");
}

fn set(target: &str, knobs: &str) -> Request {
    Request::Set(Box::new(SetRequest {
        target: target.into(),
        knobs: serde_json::from_str(knobs).unwrap(),
        choice: Choice::default(),
    }))
}

fn rate_ppm(pid: i32) -> Option<u64> {
    simulated::with(|kernel| kernel.rate_ppm(pid))
}

#[test]
fn a_process_in_a_group_of_another_name_is_refused_and_keeps_its_limit() {
    for is_run in [true, false] {
        let mut rig = Rig::new();
        let (name, group) = match is_run {
            true => ("a", "plimsoll/a"),
            false => ("pid-5", "plimsoll/pid-5"),
        };
        match is_run {
            true => rig.run(name, 5),
            false => drop(rig.set(5, QUOTA)),
        }
        fork(5, 6);
        for pid in if is_run { &[5, 6][..] } else { &[6] } {
            let answer = rig.set(*pid, r#"{"quota": "90ms/100ms"}"#);
            let expected =
                format!("{pid}: is in group `{name}` already; change that: plimsoll set {name}");
            assert_eq!(answer, Answer::Refused(expected));
            assert_eq!((rate_ppm(*pid), &*place(*pid)), (PPM, group));
        }
        let parent = rig.ask(set("/plimsoll", QUOTA), None);
        let expected = "/plimsoll: is Plimsoll's own; allowed: a group in it";
        assert_eq!(parent, Answer::Refused(expected.into()));
        rig.ask(set(name, r#"{"quota": "10ms/100ms"}"#), None);
        assert_eq!([rate_ppm(5), rate_ppm(6)], [Some(100_000); 2]);
        if !is_run {
            // The process itself has the group by its number.
            rig.set(5, QUOTA);
            assert_eq!([rate_ppm(5), rate_ppm(6)], [PPM; 2]);
        }
    }
}

#[test]
fn a_process_that_is_set_takes_along_those_that_it_has_started_beside_it() {
    let mut rig = Rig::new();
    fork(5, 6);
    rig.set(5, r#"{"quota": "30ms/100ms"}"#);
    assert_eq!([place(5), place(6)], ["plimsoll/pid-5"; 2]);
    others_move(6, "d");
    rig.set(5, QUOTA);
    rig.pass(2);
    assert_eq!([&*place(5), &*place(6)], ["plimsoll/pid-5", "d"]);
    // The process itself comes back, the child that is elsewhere stays.
    others_move(5, "s");
    rig.set(5, QUOTA);
    assert_eq!([&*place(5), &*place(6)], ["plimsoll/pid-5", "d"]);
}

#[test]
fn a_process_that_has_changed_its_group_goes_home_in_the_end() {
    let mut rig = Rig::new();
    rig.run("a", 5);
    fork(5, 6);
    rig.run("b", 5);
    assert_eq!([&*place(5), &*place(6)], ["plimsoll/b", "plimsoll/a"]);
    rig.end("b");
    assert_eq!([&*place(5), &*place(6)], ["s", "plimsoll/a"]);
    rig.pass(9);
    rig.end("a");
    assert_eq!([place(5), place(6)], ["s"; 2]);
    // An owner without groups ends two seconds later.
    rig.pass(1);
    assert!(!rig.0.as_ref().unwrap().is_ending());
    rig.pass(1);
    assert!(rig.0.as_ref().unwrap().is_ending());
    let requests = Path::new(RUNTIME).join("requested.json");
    let left = simulated::with(|kernel| kernel.disk().text(&requests));
    assert_eq!(left, None);
}

#[test]
fn a_process_that_has_changed_its_group_has_its_first_nice_level_in_the_end() {
    for first_to_end in ["/s", "pid-5"] {
        let mut rig = Rig::new();
        rig.start(Some("version = 1\n"));
        rig.ask(set("/s", r#"{"nice": "5"}"#), None);
        // It has inherited the level.
        fork(5, 6);
        rig.set(5, r#"{"nice": "7"}"#);
        fork(6, 7);
        assert_eq!(nice([5, 6, 7]), [7; 3]);
        rig.reset(first_to_end);
        let left = if first_to_end == "/s" { 7 } else { 0 };
        assert_eq!(nice([5, 6, 7]), [left; 3]);
        rig.stop();
        assert_eq!(nice([5, 6, 7]), [0; 3]);
    }
}

#[test]
fn a_process_leaves_the_nice_level_of_its_group_behind_once_it_is_in_another() {
    let mut nr_refused = 0;
    for after in 0..12 {
        let mut rig = Rig::new();
        rig.start(Some("version = 1\n"));
        rig.set(5, r#"{"nice": "5"}"#);
        fork(5, 6);
        let answer = refused(after, || rig.try_run("a", 6));
        let is_refused = !matches!(answer, Answer::Groups { .. });
        nr_refused += u32::from(is_refused);
        let (level, group) = match is_refused {
            true => (5, "plimsoll/pid-5"),
            false => (0, "plimsoll/a"),
        };
        assert_eq!((nice([5, 6]), &*place(6)), ([5, level], group), "{after}");
        rig.stop();
        assert_eq!(nice([5, 6]), [0; 2]);
    }
    assert!((1..12).contains(&nr_refused));
}

#[test]
fn a_quota_that_the_kernel_refuses_twice_is_put_back_by_the_next_owner() {
    let mut rig = Rig::on(Version::V1);
    let file = "d/e/cpu.cfs_quota_us";
    others_create("d/e");
    others_write(file, "70000");
    rig.ask(set("/d/e", QUOTA), None);
    rig.ask(set("/d", r#"{"quota": "50ms/100ms"}"#), None);
    // Cgroup v1 refuses 70 % below the parent's 50 %.
    rig.reset("/d/e");
    rig.ask(set("/d/e", r#"{"quota": "30ms/100ms"}"#), None);
    rig.reset("/d/e");
    assert_eq!(text(file).as_deref(), Some("30000"));
    rig.start(None);
    rig.reset("/d");
    rig.stop();
    assert_eq!(text(file).as_deref(), Some("70000"));
}

#[test]
fn bursts_that_are_switched_off_are_in_no_file_until_they_are_on_again() {
    let mut rig = Rig::new();
    let burst = |file: &str| text(file).unwrap();
    rig.ask(set("/d", r#"{"quota": "1cpus", "burst": "10ms"}"#), None);
    assert_eq!(burst("d/cpu.max.burst"), "10000");
    // A burst of others beside a quota of ours.
    others_write("s/cpu.max.burst", "5000");
    rig.ask(set("/s", QUOTA), None);
    for (enabled, usec, theirs) in [(false, "0", "0"), (true, "10000", "5000")] {
        rig.ask(Request::Burst { enabled }, None);
        rig.start(None);
        assert_eq!(burst("d/cpu.max.burst"), usec);
        assert_eq!(burst("s/cpu.max.burst"), theirs);
        let plan = rig.ask(set("/d", r#"{"burst": "10ms"}"#), None);
        let plan = serde_json::to_string(&plan).unwrap();
        assert_eq!(plan.contains("bursts of all groups are off"), !enabled);
    }
}

#[test]
fn enforce_gives_back_a_controller_that_others_switch_off() {
    let mut rig = Rig::new();
    ["d/a", "d/b"].into_iter().for_each(others_create);
    rig.start(Some(
        "version = 1\nenforce = true\n\
         [[group]]\nname = \"a\"\nmatch = { cgroup = \"/d/a\" }\nquota = \"30ms/100ms\"\nheadroom = \"30%\"\n\
         [[group]]\nname = \"b\"\nmatch = { cgroup = \"/d/b\" }\nclass = \"batch\"\n",
    ));
    for round in 1..=3 {
        others_write("d/cgroup.subtree_control", "-cpu");
        assert_eq!(text("d/a/cpu.max"), None);
        rig.pass(3);
        assert_eq!(text("d/a/cpu.max").as_deref(), Some("30000 100000"));
        assert_eq!(text("d/b/cpu.idle").as_deref(), Some("1"));
        assert_ne!(text("d/b/cpu.max").as_deref(), Some("max 100000"));
        assert_eq!(rig.state().daemon.counters.foreign_changes, 2 * round);
    }
}

#[test]
fn what_others_write_is_noticed_and_stays_until_the_next_change_of_ours() {
    let mut rig = Rig::new();
    rig.start(Some(RULE));
    let others = |rig: &mut Rig, round| {
        others_write("d/cpu.max", "80000 100000");
        rig.pass(3);
        assert_eq!(text("d/cpu.max").as_deref(), Some("80000 100000"));
        let state = rig.state();
        assert_eq!(state.daemon.counters.foreign_changes, round);
        let changed = &state.groups[0].statistics.as_ref().unwrap().foreign_changes;
        assert!(changed[0].contains("was changed to `80000"), "{changed:?}");
    };
    let ours = [
        (Request::Reload, "20000 100000"),
        (set("web", QUOTA), "20000 100000"),
        // The kernel has no parts of a microsecond.
        (set("web", r#"{"quota": "0.333333cpus"}"#), "33333 100000"),
    ];
    for (round, (request, written)) in (1..).zip(ours) {
        others(&mut rig, round);
        rig.ask(request, None);
        assert_eq!(text("d/cpu.max").as_deref(), Some(written));
    }
    rig.reset("web");
    assert_eq!(text("d/cpu.max").as_deref(), Some("20000 100000"));
}

#[test]
fn a_group_that_others_remove_before_any_event_is_read_is_made_again() {
    let mut rig = Rig::new();
    rig.run("a", 5);
    let taken = rig.try_run("a", 5);
    let told = "group `a` exists already; choose another --name, or see `plimsoll show a`";
    assert_eq!(taken, Answer::Refused(told.into()));
    others_move(5, "s");
    others_remove("plimsoll/a");
    rig.pass(3);
    assert_eq!((rate_ppm(5), &*place(5)), (PPM, "plimsoll/a"));
}

#[test]
fn a_command_and_a_group_that_the_file_has_of_its_name_are_both_in_force_after_a_kill() {
    let mut rig = Rig::new();
    rig.run("web", 5);
    fork(5, 6);
    rig.start(Some(
        "version = 1\n[[group]]\nname = \"web\"\nmatch = { cgroup = \"/d\" }\nweight = 50\n",
    ));
    assert_eq!([place(5), place(6)], ["plimsoll/web"; 2]);
    assert_eq!([rate_ppm(5), rate_ppm(6)], [PPM; 2]);
    assert_eq!(text("d/cpu.weight").as_deref(), Some("50"));
    let answer = rig.ask(Request::Reload, None);
    assert!(matches!(answer, Answer::Reloaded(_)), "{answer:?}");
    // The name means the command's group while that runs, and then the file's.
    let named = |rig: &mut Rig| match rig.ask(set("web", r#"{"weight": "60"}"#), None) {
        Answer::Groups { groups, .. } => groups[0].clone(),
        other => panic!("{other:?}"),
    };
    let of_command = named(&mut rig);
    assert_eq!(of_command.name, "web");
    assert!(of_command.note.unwrap().contains("a group of that name"));
    assert_eq!(text("d/cpu.weight").as_deref(), Some("50"));
    rig.end("web");
    assert_eq!([place(5), place(6)], ["s"; 2]);
    assert_eq!(named(&mut rig).name, "/d");
    assert_eq!(text("d/cpu.weight").as_deref(), Some("60"));
}

#[test]
fn restore_leaves_a_command_that_has_the_name_of_a_group_that_was_set() {
    let mut rig = Rig::new();
    rig.start(Some(
        "version = 1\n[[group]]\nname = \"web\"\nmatch = { cgroup = \"/d\" }\nweight = 50\n",
    ));
    rig.ask(set("web", r#"{"weight": "60"}"#), None);
    let Answer::Restored(report) = rig.ask(Request::Restore, None) else {
        panic!("not restored")
    };
    assert!(report.undone.is_empty() && report.notes[0].contains(CONFIG));
    rig.stop();
    // Without a file the name is free.
    rig.start(None);
    rig.run("web", 5);
    let answer = rig.ask(Request::Restore, None);
    assert!(matches!(answer, Answer::Restored(_)), "{answer:?}");
    rig.pass(2);
    assert_eq!((place(5).as_str(), rate_ppm(5)), ("plimsoll/web", PPM));
}

/// Stops an owner with a file, of a group with the processes 5 and 6.
fn stopped() -> Rig {
    let mut rig = Rig::new();
    rig.start(Some("version = 1\n"));
    rig.run("a", 5);
    fork(5, 6);
    rig.stop();
    assert_eq!(place(6), "s");
    rig
}

/// Starts the next owner after [`stopped`]; one write to the disk, after so many, finds it full.
fn restarted_on_a_full_disk(after: u64) -> Rig {
    let mut rig = stopped();
    let full = Some((simulated::Write::Disk, after, ENOSPC));
    simulated::with(|kernel| kernel.faults.refusal_in = full);
    rig.0 = Service::start(stock::options(rig.1.0, true, Log::silent(), None)).ok();
    simulated::with(|kernel| kernel.faults.refusal_in = None);
    rig
}

#[test]
fn members_that_a_full_disk_has_kept_out_are_moved_in_later() {
    let mut was_out = false;
    // The owner writes so often at a start, and once more.
    for after in 0..40 {
        let mut rig = restarted_on_a_full_disk(after);
        if rig.0.is_some() {
            was_out |= rate_ppm(6).is_none();
            rig.pass(2);
            assert_eq!(rate_ppm(6), PPM, "{after}");
        }
    }
    assert!(was_out);
}

#[test]
fn a_group_that_waits_for_the_disk_outlives_its_first_process() {
    let mut was_out = false;
    for after in 0..40 {
        let mut rig = restarted_on_a_full_disk(after);
        simulated::with(|kernel| {
            kernel.faults.disk_is_full = true;
            kernel.end(5);
        });
        if rig.0.is_some() {
            was_out |= rate_ppm(6).is_none();
            rig.pass(9);
            simulated::with(|kernel| kernel.faults.disk_is_full = false);
            rig.pass(70);
            assert_eq!(rate_ppm(6), PPM, "{after}");
        }
    }
    assert!(was_out);
}

#[test]
fn a_group_that_could_not_be_undone_takes_the_next_process_in() {
    for after in 0..12 {
        let mut rig = Rig::new();
        simulated::with(|kernel| kernel.tasks().start_in(7, Path::new("s")));
        rig.run("x", 5);
        // No request is for the group any more, and its undo is refused once.
        let requests = Path::new(RUNTIME).join("requested.json");
        simulated::with(|kernel| kernel.disk().forget(&requests));
        refused(after, || rig.start(None));
        rig.run("x", 7);
        assert_eq!(rate_ppm(7), PPM, "{after}");
    }
}

#[test]
fn a_check_refuses_a_group_in_the_words_of_a_reload() {
    let mut rig = Rig::new();
    rig.start(Some("version = 1\n"));
    let text = "version = 1\n[[group]]\nname = \"d\"\nmatch = { cgroup = \"/d\" }\nquota = \"20ms/100ms\"\n";
    let check = |text: &str| {
        let options = stock::options(Version::V2, true, Log::silent(), None);
        let config = Config::parse(CONFIG, text).unwrap();
        service::check(&config, &options.hierarchy, options.starter.as_ref())
    };
    assert!(check(text).is_ok());
    let text = format!("{text}burst = \"200ms\"\n");
    let refused = check(&text).unwrap_err().to_string();
    assert!(refused.starts_with("group `d`: burst: "), "{refused}");
    simulated::with(|kernel| kernel.disk().others_write(Path::new(CONFIG), &text));
    let answer = rig.ask(Request::Reload, None);
    let Answer::Refused(reason) = &answer else {
        panic!("{answer:?}");
    };
    assert_eq!(*reason, format!("{CONFIG}: {refused}"));
}

#[test]
fn what_holds_limits_of_an_earlier_owner_stays_until_all_groups_are_in_force() {
    let mut rig = Rig::new();
    rig.0 = None;
    let config = "version = 1\n[[group]]\nname = \"d\"\nmatch = { cgroup = \"/d\" }\nquota = \"20ms/100ms\"\n";
    simulated::with(|kernel| {
        kernel.disk().others_write(Path::new(CONFIG), config);
        kernel.faults.refusal_in = Some((Write::Kernel, 0, EIO));
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let sets = Arc::clone(&is_over);
    let handover = Box::new(move || {
        sets.store(true, Ordering::Relaxed);
        UndoReport::default()
    });
    let options = stock::options(rig.1.0, true, Log::silent(), Some(handover));
    rig.0 = Service::start(options).ok();
    let is_over = || is_over.load(Ordering::Relaxed);
    assert!(!is_over());
    rig.pass(2);
    assert_eq!(text("d/cpu.max").as_deref(), Some("20000 100000"));
    assert!(is_over());
}

#[test]
fn a_cgroup_that_a_process_above_it_has_made_useless_is_shown_as_not_in_force() {
    let mut rig = Rig::new();
    others_create("d/job1");
    rig.start(Some(
        "version = 1\n[[group]]\nname = \"jobs\"\nmatch = { cgroup = \"/d/*\" }\nquota = \"20ms/100ms\"\n",
    ));
    let problem = |rig: &mut Rig| rig.state().groups[0].problem.clone();
    assert_eq!(problem(&mut rig), None);
    // The kernel takes it, because no cgroup inside has any.
    others_move(5, "d");
    let shown = problem(&mut rig).unwrap();
    let is_named = |part: &str| shown.contains(part);
    assert!(is_named("is not in force") && is_named("/d holds process 5 itself"));
    others_move(5, "s");
    assert_eq!(problem(&mut rig), None);
    others_move(5, "d/job1");
    assert_eq!((problem(&mut rig), rate_ppm(5)), (None, PPM));
}
