//! Kills, damaged journals, removed cgroups.

use std::fs;
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::runtime::RuntimeFolder;

use super::rig::{helper, knobs, name_of, policy, remove_cgroup, start, tick, with_values};
use crate::common::{Host, assert_same, wait_until};

/// The cgroups of the helper below, with knobs.
const OF_THE_HELPER: [(&str, &str); 5] = [
    (
        "a",
        r#"{"quota": "20ms/50ms", "burst": "5ms", "nice": "4"}"#,
    ),
    ("b", r#"{"class": "batch", "headroom": "30%"}"#),
    ("c", r#"{"soft-cap": "0%"}"#),
    ("d", r#"{"weight": "321", "cap": "40%"}"#),
    ("e", r#"{"class": "batch"}"#),
];

/// Not a test of its own: it never ends.
#[test]
#[ignore = "run by others"]
fn helper_that_holds_cgroups_until_it_is_killed() {
    let hierarchy = Arc::new(Hierarchy::find().unwrap());
    let runtime = RuntimeFolder::of_this_user();
    let (mut enforcer, _) = CgroupEnforcer::start(&hierarchy, &runtime).unwrap();
    for (name, json) in OF_THE_HELPER {
        let group = CpuGroup::at(&hierarchy, hierarchy.base().join(name));
        enforcer
            .add(&policy(&group, r#"{"cap": "90%"}"#), "")
            .unwrap();
        enforcer.change(&name_of(&group), &knobs(json)).unwrap();
    }
    tick(&mut enforcer, 20);
    println!("all are held");
    loop {
        nix::unistd::pause();
    }
}

fn kill_one_that_holds(host: &Host) {
    let running = helper(host, "ends::helper_that_holds_cgroups_until_it_is_killed");
    wait_until("all are held", || {
        running.stdout().contains("all are held") || running.stderr().contains("panicked")
    });
    assert!(
        !running.stderr().contains("panicked"),
        "{}",
        running.stderr()
    );
    running.kill_hard();
}

#[test]
fn damaged_journal_is_undone_as_far_as_it_is_valid_and_kept_aside() {
    let mut host = Host::new();
    for (name, _) in OF_THE_HELPER {
        with_values(&mut host, name);
    }
    let before = host.snapshot();
    kill_one_that_holds(&host);
    let path = host.runtime().join("daemon+.journal");
    let text = fs::read_to_string(&path).unwrap();
    let is_of_d = |line: &&str| line.contains("/d/") && !line.contains("released");
    let damaged = text.lines().filter(is_of_d).count();
    let lines = text.lines().map(|line| match is_of_d(&line) {
        true => &line[..line.len() / 2],
        false => line,
    });
    let lines: Vec<&str> = lines.collect();
    fs::write(&path, lines.join("\n") + "\n").unwrap();

    let runtime = RuntimeFolder::at(host.runtime());
    let (mut next, left) = CgroupEnforcer::start(host.hierarchy(), &runtime).unwrap();
    assert_eq!(left.problems.len(), 1, "{left:?}");
    let problem = &left.problems[0];
    assert!(problem.contains("is damaged"), "{problem}");
    assert_eq!(problem.matches("line ").count(), damaged * 2, "{problem}");
    let aside = host.runtime().join("daemon+.journal.damaged");
    assert_eq!(fs::read_to_string(&aside).unwrap(), lines.join("\n") + "\n");
    fs::remove_file(aside).unwrap();
    // All others are restored; the unknown one is left.
    let d = host.base().child("d");
    assert_eq!(d.read_weight().unwrap(), 321);
    next.undo();
    with_values(&mut host, "d");
    assert_same(&before, &host.snapshot());
}

#[test]
fn cgroup_deleted_meanwhile_is_no_problem() {
    let mut host = Host::new();
    let stays = with_values(&mut host, "stays");
    let before = host.snapshot();
    let gone = host.base().child("gone");
    let mut enforcer = start(&host);
    // Between match and write.
    let policies = [&gone, &stays].map(|group| {
        let json = r#"{"weight": "70", "quota": "1cpus"}"#;
        (policy(group, json), String::new())
    });
    let results = enforcer.add_all(&policies);
    assert!(results[0].as_ref().unwrap_err().is_gone(), "{results:?}");
    assert!(results[1].is_ok(), "{results:?}");
    let again = enforcer.add(&policies[0].0, "").unwrap_err();
    assert!(again.is_gone(), "{again}");
    // While it has knobs, once with a loop.
    for json in [r#"{"nice": "3", "cap": "20%"}"#, r#"{"soft-cap": "10%"}"#] {
        gone.create().unwrap();
        enforcer.add(&policy(&gone, json), "").unwrap();
        remove_cgroup(&gone);
        let name = name_of(&gone);
        assert!(enforcer.audit(&name).unwrap_err().is_gone());
        assert!(enforcer.sample(&name).unwrap_err().is_gone());
        tick(&mut enforcer, 10);
        let report = enforcer.remove(&name).unwrap();
        assert_eq!(report.problems, <[String; 0]>::default());
        assert!(enforcer.knobs(&name).is_err());
    }
    gone.create().unwrap();
    enforcer.add(&policies[0].0, "").unwrap();
    remove_cgroup(&gone);
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    assert_same(&before, &host.snapshot());
}
