//! Kills and successors of a daemon, and `plimsoll restore` beside and after one.

use std::io::ErrorKind;

use inotify::{Inotify, WatchMask};
use plimsoll_cgroupfs::{CpuGroup, Version};

use crate::common::{Host, Running, is_alive, wait_until};
use crate::rig::{Daemon, kill_all, members, of_cgroup, own_group, quota_us, rule, shown};

/// A command with a child, in a group of the daemon.
fn start_two(host: &Host) -> Running {
    let script = "sleep 600 & echo ready; sleep 600";
    let running = host.start([
        "run", "--name", "job", "--cap", "50%", "--", "sh", "-c", script,
    ]);
    wait_until("it runs", || running.stdout().contains("ready"));
    // The shell and its children; some shells execute the last one themselves.
    wait_until("all are there", || members(host, "job").len() >= 2);
    running
}

/// Observes every write to a file of a cgroup, by any process.
fn watch(group: &CpuGroup, knobs: &[&str]) -> Inotify {
    let watch = Inotify::init().unwrap();
    for knob in knobs {
        let file = group.cpu_file(knob);
        watch.watches().add(&file, WatchMask::MODIFY).unwrap();
    }
    watch
}

#[test]
fn limits_survive_a_kill_and_the_next_daemon_adopts_them_without_a_write() {
    let mut host = Host::new();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    let running = start_two(&host);
    host.run(["set", &shown(&web), "--quota", "40ms/100ms"])
        .good();
    let before = members(&host, "job");
    let job = own_group(&host, "job").unwrap();
    let knobs = match web.hierarchy().version() {
        Version::V1 => ["cpu.cfs_quota_us", "cpu.cfs_period_us"],
        Version::V2 => ["cpu.max", "cpu.weight"],
    };
    let mut watches = [watch(&web, &knobs), watch(&job, &knobs)];
    daemon.kill_hard();
    assert_eq!(quota_us(&web), 40_000, "{}", daemon.log());
    assert_eq!(quota_us(&job), 10_000);
    daemon.restart();
    assert_eq!(quota_us(&web), 40_000, "{}", daemon.log());
    assert_eq!(members(&host, "job"), before);
    for watch in &mut watches {
        let none = watch.read_events(&mut [0; 1024]).err().map(|e| e.kind());
        assert_eq!(none, Some(ErrorKind::WouldBlock), "{}", daemon.log());
    }
    // The watch observes a write.
    host.run(["set", &shown(&web), "--quota", "50ms/100ms"])
        .good();
    assert!(watches[0].read_events(&mut [0; 1024]).is_ok());
    kill_all(&before);
    running.finish();
    host.run(["set", &shown(&web), "--reset"]).good();
    assert_eq!(quota_us(&web), 30_000);
    daemon.end();
    assert_eq!(quota_us(&web), -1);
    host.assert_clean();
}

#[test]
fn set_knobs_survive_the_start_and_end_of_a_daemon() {
    let mut host = Host::new();
    let web = host.group("web");
    let target = shown(&web);
    host.run(["set", &target, "--quota", "40ms/100ms"]).good();
    let on_demand = host.owner_pid();
    let text = rule("web", &of_cgroup(&target), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    assert!(!is_alive(on_demand), "there is one owner");
    assert_eq!(quota_us(&web), 40_000, "{}", daemon.log());
    let said = host.run(["restore"]).good();
    assert_eq!(said.stdout.trim(), "nothing was left behind");
    assert_eq!(quota_us(&web), 40_000);
    daemon.end();
    assert_eq!(quota_us(&web), -1);
    // The next owner still knows it.
    host.run(["run", "--", "true"]).good();
    assert_eq!(quota_us(&web), 40_000);
    host.run(["restore"]).good();
    assert_eq!(quota_us(&web), -1);
    host.assert_clean();
}
