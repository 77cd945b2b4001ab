//! `set`, `show` and `restore` on groups, foreign cgroups and processes.

use std::fs;

use crate::common::{Host, bandwidth_us, knob, membership, wait_until};
use crate::rig::shown;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks::nice;

#[test]
fn restore_gives_a_foreign_cgroup_every_old_value() {
    let mut host = Host::new();
    let group = host.group("foreign");
    group.write_weight(50).unwrap();
    let old = plimsoll_engine::knobs::Bandwidth::of(
        "70ms/100ms".parse().unwrap(),
        Some("30ms".parse().unwrap()),
    );
    group.write_cpu_max(&old.into()).unwrap();
    let sleeper = host.start_in(&group, ["sleep", "600"]);
    wait_until("it is there", || !group.processes().unwrap().is_empty());
    let before = host.snapshot();
    let nice_before = nice(sleeper.pid()).unwrap();
    let target = shown(&group);
    for knobs in [
        "--weight 200 --quota 20ms/50ms --burst 5ms --nice 5",
        "--quota max --burst 0",
        "--weight 300",
        "--cpu-max 90000",
        "--nice 9",
    ] {
        let words = ["set", &target].into_iter().chain(knobs.split(' '));
        host.run(words).good();
    }
    // The earlier change stays in force, and a cgroup has one quota.
    let refused = host.run(["set", &target, "--cap", "25%"]);
    assert_eq!(refused.code(), 125, "{refused:?}");
    assert!(refused.one_line().contains("one quota"), "{refused:?}");
    assert_eq!(group.read_weight().unwrap(), 300);
    assert_eq!(bandwidth_us(&group).0, 90_000);
    assert_eq!(nice(sleeper.pid()).unwrap(), 9);
    let all = host.run(["show"]).good().stdout;
    assert!(
        all.contains(&target) && all.contains("command-line"),
        "{all}"
    );
    host.run(["restore"]).good();
    host.assert_as(&before);
    assert_eq!(nice(sleeper.pid()).unwrap(), nice_before);
    let again = host.run(["restore"]).good();
    assert_eq!(again.stdout, "nothing was left behind\n");
}

#[test]
fn a_cgroup_can_be_named_by_its_folder_too() {
    let mut host = Host::new();
    let group = host.group("foreign");
    let (folder, target) = (group.cpu_file(""), shown(&group));
    let folder = folder.to_str().unwrap();
    let shown = host.run(["set", folder, "--cap", "50%", "--json"]).good();
    let shown = &shown.json()["group"];
    assert_eq!(shown["name"], target);
    assert_eq!(shown["knobs"]["cap"], "50%");
    assert_eq!(bandwidth_us(&group), (10_000, 20_000, 1_000));
    host.run(["restore"]).good();
    assert_eq!(bandwidth_us(&group), (-1, 100_000, 0));
}

#[test]
fn set_on_a_pid_lasts_until_it_is_reset_or_restored() {
    let mut host = Host::new();
    let home = host.group("home");
    for ends in ["reset", "restore"] {
        let worker = host.start_load_in(&home, "burn --threads 2 --duration 600s");
        wait_until("it is there", || home.is_populated().unwrap());
        let (pid, before) = (worker.pid(), membership(worker.pid()));
        let nice_before = nice(pid).unwrap();
        let (target, name) = (pid.to_string(), format!("pid-{pid}"));
        host.run(["set", &target, "--cap", "30%", "--nice", "4"])
            .good();
        assert!(membership(pid).contains(&name), "{}", membership(pid));
        assert_eq!(bandwidth_us(&host.normal(&name)), (3_000, 10_000, 1_000));
        assert_eq!(nice(pid).unwrap(), 4);
        // Another adds to it.
        host.run(["set", &target, "--nice", "6"]).good();
        assert_eq!(bandwidth_us(&host.normal(&name)), (3_000, 10_000, 1_000));
        assert_eq!(nice(pid).unwrap(), 6);
        match ends {
            "reset" => host.run(["set", &target, "--reset"]).good(),
            _ => host.run(["restore"]).good(),
        };
        assert_eq!(membership(pid), before, "{ends}");
        assert_eq!(nice(pid).unwrap(), nice_before, "{ends}");
        assert!(!host.normal(&name).exists(), "{ends}");
        worker.stop();
    }
    host.assert_clean();
}

#[test]
fn set_changes_a_running_group_even_if_it_must_be_rebuilt() {
    let host = Host::new();
    let running = host.start(["run", "--name", "g", "--cap", "50%", "--", "sleep", "600"]);
    wait_until("it runs", || {
        host.normal("g").is_populated().unwrap_or(false)
    });
    let pid = host.normal("g").processes().unwrap()[0];
    for (knobs, place, quota) in [
        ("--cap 20%", "plimsoll/g", 2_000),
        ("--quota 50ms/100ms", "quota/cap", 2_000),
        ("--class batch", "plimsoll-batch/g", 2_000),
        (
            "--class normal --soft-cap 30% --cap 40%",
            "plimsoll-soft-g",
            4_000,
        ),
        ("--class batch --headroom 20% --nice 6", "headroom", 1_000),
    ] {
        let words = ["set", "g"].into_iter().chain(knobs.split(' '));
        host.run(words).good();
        let now = membership(pid);
        assert!(now.contains(place), "{knobs}: {now}");
        let path = now.lines().next().unwrap().rsplit(':').next().unwrap();
        let mut group = CpuGroup::at(host.hierarchy(), path.trim_start_matches('/'));
        if place == "headroom" {
            // A runtime that looks there does not find what the controller grants for a moment.
            let own = if host.is_v2() { 4_000 } else { -1 };
            assert_eq!(bandwidth_us(&group).0, own);
            while !group.path().ends_with(place) {
                group = group.parent().unwrap();
            }
            // Its controller gives idle batch work the least.
            wait_until("it is controlled", || bandwidth_us(&group).0 == quota);
        }
        assert_eq!(bandwidth_us(&group).0, quota, "{knobs}");
        let state = host.show("g");
        assert_eq!(state["statistics"]["processes"], 1, "{state}");
    }
    assert_eq!(nice(pid).unwrap(), 6);
    running.stop();
    host.assert_clean();
}

#[test]
fn external_change_is_shown_and_respected() {
    let host = Host::new();
    let group = host.normal("g");
    let running = host.start("run --name g --weight 50 --cap 50% -- sleep 600".split(' '));
    wait_until("it runs", || group.is_populated().unwrap_or(false));
    assert!(
        host.show("g")["statistics"]
            .get("foreign_changes")
            .is_none()
    );
    let theirs = plimsoll_engine::knobs::Bandwidth::of("9ms/10ms".parse().unwrap(), None);
    group.write_cpu_max(&theirs.into()).unwrap();
    group.write_weight(60).unwrap();
    let changes = || {
        let list = host.show("g")["statistics"]["foreign_changes"].clone();
        list.as_array().cloned().unwrap_or_default()
    };
    let is_told = |text: &str| {
        let mut changes = changes().into_iter();
        changes.any(|change| change.as_str().unwrap().contains(text))
    };
    let weight = match host.is_v2() {
        true => "cpu.weight was changed to `60`",
        false => "cpu.shares was changed to `614`",
    };
    wait_until("both are noticed", || {
        is_told(weight) && is_told("was changed to `9000")
    });
    assert_eq!(bandwidth_us(&group), (9_000, 10_000, 0));
    // A `set` writes the value again.
    host.run(["set", "g", "--cap", "40%"]).good();
    assert_eq!(bandwidth_us(&group), (4_000, 10_000, 1_000));
    assert_eq!(knob(&group, "cgroup.procs").lines().count(), 1);
    running.stop();
    host.assert_clean();
}

#[test]
fn a_dry_run_of_set_changes_nothing() {
    let mut host = Host::new();
    let group = host.group("foreign");
    let running = host.start(["run", "--name", "g", "--cap", "50%", "--", "sleep", "600"]);
    wait_until("it runs", || {
        host.normal("g").is_populated().unwrap_or(false)
    });
    // It is also journaled.
    host.show("g");
    let before = host.snapshot();
    let pid = running.pid().to_string();
    for target in ["g", &shown(&group), &pid] {
        let plan = host
            .run(["set", target, "--cap", "20%", "--dry-run"])
            .good();
        assert!(plan.stdout.contains("cap"), "{plan:?}");
    }
    host.assert_as(&before);
    assert_eq!(host.show("g")["knobs"]["cap"], "50%");
    running.stop();
}

#[test]
fn bursts_of_all_groups_stay_off_without_a_daemon_until_they_are_restored() {
    let host = Host::new();
    let off = host.run(["set", "--all", "--burst-enabled", "no"]).good();
    assert_eq!(off.stdout, "bursts of all groups are off\n");
    // The owner that was started for it may have ended; the next one knows it.
    assert!(host.end_idle_owner());
    let words = "run --name web --quota 50ms/100ms --burst 20ms -- sleep 600";
    let web = host.start(words.split(' '));
    let group = host.normal("web");
    wait_until("it is limited", || host.run(["show", "web"]).code() == 0);
    let burst = || bandwidth_us(&group).2;
    assert_eq!(burst(), 0);
    host.run(["set", "--all", "--burst-enabled", "yes"]).good();
    assert_eq!(burst(), 20_000);
    host.run(["set", "--all", "--burst-enabled", "no"]).good();
    assert_eq!(burst(), 0);
    let restored = host.run(["restore", "--json"]).good().json();
    assert_eq!(restored["undone"], serde_json::json!(["burst-enabled"]));
    assert_eq!(burst(), 20_000);
    web.stop();
    host.assert_clean();
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
