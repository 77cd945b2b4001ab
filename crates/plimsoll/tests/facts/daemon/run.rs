//! `plimsoll run` while a daemon runs.

use crate::common::{Host, Running, bandwidth_us, wait_until};
use crate::rig::Daemon;

/// Starts a command that reports its start.
fn start(host: &Host, knobs: &[&str], script: &str) -> Running {
    let script = format!("echo ready; {script}");
    let words = [&["run"], knobs, &["--", "sh", "-c", &script]].concat();
    let running = host.start(words);
    wait_until("it runs", || running.stdout().contains("ready"));
    running
}

#[test]
fn command_runs_in_a_group_of_the_daemon_that_ends_with_it() {
    let host = Host::new();
    let daemon = Daemon::start(&host, "");
    let running = start(
        &host,
        &["--name", "job", "--quota", "40ms/100ms"],
        "exec sleep 600",
    );
    let group = host.normal("job");
    assert_eq!(bandwidth_us(&group).0, 40_000, "{}", daemon.log());
    let kept = daemon.group("job").unwrap();
    assert!(kept.subject.contains("sleep 600"), "{kept:?}");
    assert!(kept.statistics.unwrap().processes >= 1);
    // `set` and `show` know it by its name.
    host.run(["set", "job", "--quota", "50ms/100ms"]).good();
    assert_eq!(bandwidth_us(&group).0, 50_000);
    let shown = host.run(["show", "job", "--json"]).good().stdout;
    assert!(shown.contains("50ms/100ms"), "{shown}");
    running.stop();
    wait_until("the group has gone", || !group.exists());
    wait_until("and is forgotten", || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn quota_is_in_force_at_the_first_instruction_of_the_command() {
    let host = Host::new();
    let daemon = Daemon::start(&host, "");
    let (name, expected) = match host.is_v2() {
        true => ("cpu.max", "40000 100000\n"),
        false => ("cpu.cfs_quota_us", "40000\n"),
    };
    let file = host.normal("job").cpu_file(name).display().to_string();
    // By the daemon, and by the command itself.
    for enforcer in ["auto", "cgroup"] {
        let words = format!("run --enforcer {enforcer} --name job --quota 40ms/100ms -- cat");
        let finished = host.run(words.split(' ').chain([file.as_str()])).good();
        assert_eq!(finished.stdout, expected, "{enforcer}: {}", daemon.log());
    }
    wait_until("it is forgotten", || daemon.names().is_empty());
    daemon.stop();
}
