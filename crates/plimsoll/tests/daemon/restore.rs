//! `plimsoll restore` beside and after a daemon: for an operator, and for a
//! service manager.

use crate::common::{Host, Running, assert_same, wait_until};
use crate::rig::{
    Daemon, SHORT, kill_all, members, of_cgroup, own_group, quota_us, rule, shown, wait_for_quota,
};

const OF_DAEMON: [&str; 2] = ["restore", "--of-daemon"];

/// A command with a child, in a group of the daemon's.
fn start_two(host: &Host) -> Running {
    let script = "sleep 600 & echo ready; sleep 600";
    let running = host.start([
        "run", "--name", "job", "--cap", "50%", "--", "sh", "-c", script,
    ]);
    wait_until("it runs", SHORT, || running.stdout().contains("ready"));
    // The shell and its children: some shells become the last themselves.
    wait_until("all are there", SHORT, || members(host, "job").len() >= 2);
    running
}

#[test]
fn after_a_kill_the_service_manager_undoes_and_the_next_daemon_takes_everything_back() {
    let mut host = Host::shared();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    let running = start_two(&host);
    host.run(["set", &shown(&web), "--quota", "40ms/100ms"])
        .good();
    let before = members(&host, "job");
    daemon.kill_hard();
    host.run(OF_DAEMON).good();
    assert_eq!(quota_us(&web), -1, "{}", daemon.log());
    assert!(own_group(&host, "job").is_none());
    daemon.restart();
    wait_for_quota(&daemon, &web, 40_000);
    wait_until("all are back in their group", SHORT, || {
        members(&host, "job") == before
    });
    kill_all(&before);
    running.finish(SHORT);
    host.run(["set", &shown(&web), "--reset"]).good();
    daemon.stop();
}

#[test]
fn what_was_set_before_a_daemon_is_restored_after_it_and_not_forgotten_beside_it() {
    let mut host = Host::shared();
    let web = host.group("web");
    let target = shown(&web);
    let before = host.snapshot();
    host.run(["set", &target, "--quota", "40ms/100ms"]).good();
    let text = rule("web", &of_cgroup(&target), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    assert_eq!(quota_us(&web), 30_000, "{}", daemon.log());
    let refused = host.run(["restore"]);
    assert_eq!(refused.code(), 125);
    let keeper = format!("{target}: stays as it is: process {}", daemon.pid());
    assert!(refused.one_line().contains(&keeper), "{}", refused.stderr);
    assert_eq!(quota_us(&web), 30_000);
    daemon.stop();
    assert_eq!(quota_us(&web), 40_000);
    host.run(["restore"]).good();
    assert_eq!(quota_us(&web), -1);
    // But for what the daemon had written down, which was nothing.
    let _ = std::fs::remove_file(host.runtime().join("remembered.json"));
    assert_same(&before, &host.snapshot());
}

#[test]
fn the_service_manager_leaves_what_was_set_without_a_daemon() {
    let mut host = Host::shared();
    let web = host.group("web");
    host.run(["set", &shown(&web), "--quota", "40ms/100ms"])
        .good();
    let said = host.run(OF_DAEMON).good();
    assert_eq!(said.stdout.trim(), "nothing was left behind");
    assert_eq!(quota_us(&web), 40_000);
    host.run(["restore"]).good();
    assert_eq!(quota_us(&web), -1);
}

#[test]
fn a_daemon_that_runs_is_left_alone() {
    let mut host = Host::shared();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    host.run(["set", &shown(&web), "--quota", "40ms/100ms"])
        .good();
    for words in [&OF_DAEMON[..], &["restore"]] {
        let said = host.run(words.iter()).good();
        assert_eq!(said.stdout.trim(), "nothing was left behind", "{words:?}");
        assert_eq!(quota_us(&web), 40_000, "{words:?}");
    }
    host.run(["set", &shown(&web), "--reset"]).good();
    assert_eq!(quota_us(&web), 30_000);
    daemon.stop();
}

#[test]
fn what_was_set_for_a_daemon_is_forgotten_by_restore_when_that_is_gone() {
    let mut host = Host::shared();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    host.run(["set", &shown(&web), "--quota", "40ms/100ms"])
        .good();
    daemon.end();
    daemon.restart();
    assert_eq!(quota_us(&web), 40_000, "a restart changes nothing");
    daemon.end();
    let said = host.run(["restore"]).good().stdout;
    assert_eq!(said.trim(), format!("undone: {}", shown(&web)));
    daemon.restart();
    assert_eq!(quota_us(&web), 30_000, "{}", daemon.log());
    daemon.stop();
}
