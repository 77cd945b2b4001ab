//! `set`, `show` and `restore` on groups, foreign cgroups and processes.

use std::fs;

use crate::common::Host;
use crate::rig::shown;

#[test]
fn a_change_that_cannot_be_printed_is_made_and_told() {
    let mut host = Host::new();
    let group = host.group("foreign");
    let target = shown(&group);
    for (words, weight) in [
        (&["set", &target, "--weight", "300"][..], 300),
        (&["set", &target, "--weight", "200", "--dry-run"], 300),
        (&["set", &target, "--reset"], 100),
        (&["set", &target, "--weight", "400"], 400),
        (&["restore"], 100),
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let done = host.plimsoll(words).stdout(full).output().unwrap();
        assert_eq!(group.read_weight().unwrap(), weight, "{words:?}");
        let is_dry = words.contains(&"--dry-run");
        let code = if is_dry { 125 } else { 1 };
        assert_eq!(done.status.code(), Some(code), "{words:?}");
        let told = String::from_utf8(done.stderr).unwrap();
        assert!(told.contains("standard output: No space left"), "{told}");
        assert_eq!(told.ends_with("the change is made\n"), !is_dry, "{told}");
    }
}

#[test]
fn a_dry_run_of_set_and_a_refused_one_change_nothing() {
    let mut host = Host::new();
    let group = host.group("foreign");
    let running = host.sleeper("g", "--cap 50%");
    let before = host.snapshot();
    let pid = running.pid().to_string();
    for target in ["g", &shown(&group), &pid] {
        let plan = host
            .run(["set", target, "--cap", "20%", "--dry-run"])
            .good();
        assert!(plan.stdout.contains("cap"), "{plan:?}");
    }
    let words = "set g --cap 20% --quota 10ms/100ms --burst 11ms".split(' ');
    assert_eq!(host.run(words).code(), 125);
    host.assert_as(&before);
    assert_eq!(host.show("g")["knobs"]["cap"], "50%");
    let traced = host.run(["debug", "--trace", "g"]);
    assert!(traced.refusal().contains("is not loaded"), "{traced:?}");
    let state = host.run(["debug"]).good().stdout;
    let tells = |part: &str| state.contains(part);
    assert!(tells("\"name\": \"g\"") && !tells("sched-ext"), "{state}");
    running.stop();
}

mod v1_only {
    use super::*;

    /// `mkdir` makes the cgroup in one hierarchy only, where `cpu` and `cpuacct` are mounted apart.
    #[test]
    fn a_cgroup_that_nothing_counts_the_time_of_can_be_set_and_shown() {
        let host = Host::new();
        assert!(!host.is_v2(), "cgroup v2 counts the time of every cgroup");
        let folder = host.base().cpu_file("uncounted");
        fs::create_dir(&folder).unwrap();
        let target = format!("{}/uncounted", host.base_path());
        let set = host.run(["set", &target, "--cap", "50%", "--json"]).good();
        assert_eq!(set.json()["group"]["knobs"]["cap"], "50%");
        assert_eq!(host.show(&target)["statistics"]["usage_usec"], 0);
        host.run(["restore"]).good();
        // It is in no group now.
        let shown = host.run(["show", &target, "--json"]).good();
        assert_eq!(shown.json()["cgroup"]["usage_usec"], 0);
        fs::remove_dir(&folder).unwrap();
    }
}
