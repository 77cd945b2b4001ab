//! `plimsoll set` while the daemon runs.

use std::fs;

use plimsoll_daemon::state::Origin;

use crate::common::{Host, bandwidth_us, wait_for, wait_until};
use crate::rig::{
    Daemon, is_in, kill_all, members, of_cgroup, quota_us, rule, shown, wait_for_quota,
    wait_until_in,
};

#[test]
fn a_group_of_the_file_is_set_and_reset_by_its_name() {
    let mut host = Host::new();
    let (one, two) = (host.group("job-1"), host.group("job-2"));
    let pattern = format!("{}/job-*", host.base_path());
    let daemon = Daemon::start(
        &host,
        &rule("jobs", &of_cgroup(&pattern), "quota = \"60ms/100ms\""),
    );
    host.run(["set", "jobs", "--quota", "30ms/100ms", "--burst", "5ms"])
        .good();
    assert_eq!(bandwidth_us(&one), (30_000, 100_000, 5_000));
    assert_eq!(bandwidth_us(&two), (30_000, 100_000, 5_000));
    assert_eq!(
        daemon.group(&shown(&one)).unwrap().origin,
        Origin::CommandLine
    );
    // A later cgroup has it, too.
    let three = host.base().child("job-3");
    three.create().unwrap();
    wait_for_quota(&daemon, &three, 30_000);
    crate::rig::remove_group(&three);
    // Knobs add up.
    host.run(["set", "jobs", "--weight", "300"]).good();
    assert_eq!((quota_us(&one), one.read_weight().unwrap()), (30_000, 300));
    host.run(["set", "jobs", "--reset"]).good();
    assert_eq!(bandwidth_us(&one), (60_000, 100_000, 0));
    assert_eq!(one.read_weight().unwrap(), 100);
    assert_eq!(host.run(["set", "jobs", "--reset"]).code(), 125);
    daemon.stop();
}

#[test]
fn process_has_a_group_of_its_own_until_reset_or_end() {
    let mut host = Host::new();
    let home = host.group("home");
    let running = host.start_in(&home, ["sleep", "600"]);
    let mut daemon = Daemon::start(&host, "");
    let (pid, group) = (running.pid().to_string(), format!("pid-{}", running.pid()));
    host.run(["set", &pid, "--class", "batch"]).good();
    wait_until_in(&daemon, running.pid(), &group);
    // `set` has ended; its change stays.
    host.run(["set", &pid, "--cap", "30%"]).good();
    assert!(is_in(&host, running.pid(), &group));
    host.run(["set", &pid, "--reset"]).good();
    assert!(home.processes().unwrap().contains(&running.pid()));
    assert!(daemon.names().is_empty());
    host.run(["set", &pid, "--class", "batch"]).good();
    running.kill_hard();
    wait_until("its group goes with it", || daemon.names().is_empty());
    assert!(!host.batch(&group).exists());
    daemon.end();
}

#[test]
fn children_of_a_set_process_stay_in_its_group_over_a_restart_and_return_at_a_reset() {
    let mut host = Host::new();
    let home = host.group("home");
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = "read -r line <\"$0\"; sleep 600 & wait";
    let running = host.start_in(&home, ["sh", "-c", script, gate.to_str().unwrap()]);
    let (pid, group) = (running.pid(), format!("pid-{}", running.pid()));
    let mut daemon = Daemon::start(&host, "");
    host.run(["set", &pid.to_string(), "--class", "batch"])
        .good();
    fs::write(&gate, "go\n").unwrap();
    let child = wait_for("its child", || {
        let others = members(&host, &group).into_iter();
        others.into_iter().find(|member| *member != pid)
    });
    for kills in [false, true] {
        if kills {
            daemon.kill_hard();
        } else {
            daemon.end();
            assert!(home.processes().unwrap().contains(&child));
        }
        daemon.restart();
        assert!(is_in(&host, child, &group), "{}", daemon.log());
    }
    host.run(["set", &pid.to_string(), "--reset"]).good();
    let back = home.processes().unwrap();
    assert!(back.contains(&child) && back.contains(&pid), "{back:?}");
    running.kill_hard();
    kill_all(&[child]);
    daemon.end();
}

#[test]
fn bursts_stay_off_by_command_until_they_are_enabled() {
    let mut host = Host::new();
    let web = host.group("web");
    let rule = rule(
        "web",
        &of_cgroup(&shown(&web)),
        "quota = \"50ms/100ms\"\nburst = \"20ms\"",
    );
    let mut daemon = Daemon::start(&host, &rule);
    let burst = || bandwidth_us(&web).2;
    assert_eq!(burst(), 20_000);
    let off = host.run(["set", "--all", "--burst-enabled", "no"]).good();
    assert_eq!(off.stdout, "bursts of all groups are off\n");
    assert_eq!(burst(), 0);
    // It survives a restart and a reload, and later changes are kept.
    daemon.kill_hard();
    daemon.restart();
    assert_eq!(burst(), 0);
    daemon.reload().good();
    assert_eq!(burst(), 0);
    host.run(["set", "web", "--burst", "30ms"]).good();
    assert_eq!(burst(), 0);
    let refused = host.run(["set", "web", "--burst", "60ms"]);
    assert_eq!(refused.code(), 125);
    assert!(
        refused.one_line().contains("sched_ext"),
        "{}",
        refused.one_line()
    );
    let on = ["set", "--all", "--burst-enabled", "yes", "--json"];
    assert_eq!(host.run(on).good().json()["burst_enabled"], true);
    assert_eq!(burst(), 30_000);
    host.run(["set", "web", "--reset"]).good();
    assert_eq!(burst(), 20_000);
    for words in [
        &["set", "--all"][..],
        &["set", "--burst-enabled", "no"],
        &["set", "web", "--all", "--burst-enabled", "no"],
        &["set", "--all", "--burst-enabled", "perhaps"],
        &["set", "--all", "--burst-enabled", "no", "--cap", "5%"],
        &["set"],
    ] {
        assert_eq!(host.run(words).code(), 125, "{words:?}");
    }
    // The file's setting has priority.
    daemon.write(&format!("burst-enabled = false\n{rule}"));
    daemon.reload().good();
    assert_eq!(burst(), 0);
    let told = host.run(on).good();
    assert_eq!(told.json()["burst_enabled"], false);
    assert!(
        told.stderr.contains("burst-enabled = false"),
        "{}",
        told.stderr
    );
    daemon.stop();
}
