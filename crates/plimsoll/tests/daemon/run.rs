//! `plimsoll run` while a daemon runs.

use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, Running, bandwidth_us, patience, wait_until};
use crate::rig::{Daemon, SHORT, kill_all, members, of_cgroup, own_group, quota_us, rule, shown};

fn sh<'a>(knobs: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut words = vec!["run"];
    words.extend(knobs);
    words.extend(["--", "sh", "-c", script]);
    words
}

/// Starts a command that reports its start.
fn start(host: &Host, knobs: &[&str], script: &str) -> Running {
    let script = format!("echo ready; {script}");
    let running = host.start(sh(knobs, &script));
    wait_until("it runs", SHORT, || running.stdout().contains("ready"));
    running
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    for code in [0, 3, 125, 255] {
        assert_eq!(
            host.run(sh(&["--cap", "50%"], &format!("exit {code}")))
                .code(),
            code
        );
    }
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGSEGV] {
        let finished = host.run(sh(&[], &format!("kill -{} $$", signal as i32)));
        assert_eq!(finished.code(), 128 + signal as i32);
    }
    let missing = host.run(["run", "--cap", "20%", "--", "no-such-command"]);
    assert_eq!(missing.code(), 127);
    assert!(
        missing.one_line().contains("no-such-command"),
        "{missing:?}"
    );
    let folder = tempfile::tempdir().unwrap();
    let refused = host.run(["run", "--", folder.path().to_str().unwrap()]);
    assert_eq!(refused.code(), 126, "{refused:?}");
    wait_until("no group is left", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn unavailable_knob_is_refused_before_the_command_starts() {
    let mut host = Host::shared();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    for words in [
        &["run", "--quota", "much", "--", "echo", "ran"][..],
        &[
            "run",
            "--cpu-limit",
            "50%",
            "--class",
            "batch",
            "--",
            "echo",
            "ran",
        ],
        &["run", "--name", "web", "--cap", "20%", "--", "echo", "ran"],
        &["run", "--name", "a/b", "--cap", "20%", "--", "echo", "ran"],
    ] {
        let refused = host.run(words.iter());
        assert_eq!(refused.stdout, "", "{words:?}");
        assert!([2, 125].contains(&refused.code()), "{words:?}: {refused:?}");
    }
    daemon.stop();
}

#[test]
fn command_runs_in_a_group_of_the_daemon_that_ends_with_it() {
    let host = Host::shared();
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
    wait_until("the group has gone", SHORT, || !group.exists());
    wait_until("and is forgotten", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn signals_are_passed_on() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let script = "trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'echo int' INT; \
                  trap 'echo term; exit 3' TERM; echo set; while :; do sleep 0.02; done";
    let running = start(&host, &["--cap", "80%"], script);
    wait_until("it listens", SHORT, || running.stdout().contains("set"));
    for (signal, word) in [
        (Signal::SIGUSR1, "usr1"),
        (Signal::SIGHUP, "hup"),
        (Signal::SIGINT, "int"),
    ] {
        running.send(signal);
        wait_until(word, SHORT, || running.stdout().contains(word));
    }
    let finished = running.stop();
    assert_eq!(finished.code(), 3);
    assert!(finished.stdout.ends_with("term\n"));
    daemon.stop();
}

#[test]
fn statistics_and_plan_are_printed_on_request() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let words = [
        "run",
        "--stats",
        "--json",
        "--quota",
        "50ms/100ms",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
    ];
    let finished = host.run(words).good();
    let stats = finished.stats();
    let usage = stats.to_string();
    assert!(
        usage.contains("usage_usec") && usage.contains("nr_periods"),
        "{usage}"
    );
    let before = host.snapshot();
    let planned = host
        .run([
            "run",
            "--dry-run",
            "--quota",
            "50ms/100ms",
            "--",
            "echo",
            "ran",
        ])
        .good();
    assert!(
        planned.stdout.contains("quota") && !planned.stdout.contains("ran"),
        "{planned:?}"
    );
    assert_eq!(host.snapshot(), before);
    wait_until("no group is left", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn command_keeps_its_limits_over_restarts_and_kills_of_the_daemon() {
    let host = Host::shared();
    let mut daemon = Daemon::start(&host, "");
    let running = start(
        &host,
        &["--name", "job", "--class", "batch", "--quota", "40ms/100ms"],
        "sleep 600 & wait; exit 7",
    );
    let limited = || {
        own_group(&host, "job").is_some_and(|group| quota_us(&group) == 40_000)
            && members(&host, "job").len() >= 2
    };
    // The shell says that it is ready before it starts its child.
    wait_until("the child runs, limited", SHORT, limited);
    for hard in [true, false, true, false] {
        if hard {
            daemon.kill_hard();
            assert!(limited(), "what is limited stays limited");
        } else {
            daemon.end();
        }
        daemon.restart();
        wait_until("it has its limits again", SHORT, limited);
    }
    // The exit code is still the command's own.
    for pid in members(&host, "job") {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "sleep" {
            kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        }
    }
    assert_eq!(running.finish(SHORT).code(), 7);
    wait_until("the group has gone", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

/// Polls until a process is in a group, and returns the quota at that time.
fn quota_of_the_first_process(group: &CpuGroup) -> i64 {
    let begun = Instant::now();
    while group.processes().unwrap_or_default().is_empty() {
        assert!(begun.elapsed() < patience(SHORT), "no process comes");
    }
    quota_us(group)
}

#[test]
fn quota_is_in_force_before_the_process_enters_its_group() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let group = host.normal("job");
    // By the daemon, and by the command itself.
    for enforcer in ["auto", "cgroup"] {
        for _ in 0..20 {
            let words =
                format!("run --enforcer {enforcer} --name job --quota 40ms/100ms -- sleep 600");
            let (running, quota) = std::thread::scope(|scope| {
                let looks = scope.spawn(|| quota_of_the_first_process(&group));
                (host.start(words.split(' ')), looks.join().unwrap())
            });
            assert_eq!(quota, 40_000, "{enforcer}: {}", daemon.log());
            kill_all(&group.all_processes().unwrap());
            running.finish(SHORT);
            wait_until("the group has gone", SHORT, || !group.exists());
        }
    }
    wait_until("it is forgotten", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn processes_left_by_a_command_stay_limited_until_they_end() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let running = start(
        &host,
        &["--name", "job", "--quota", "40ms/100ms"],
        "sleep 600 & exit 0",
    );
    let group = host.normal("job");
    // At first the only process may be the shell, which has not started its child yet.
    let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
    wait_until("only the rest runs", SHORT, || {
        let left = group.all_processes().unwrap();
        left.len() == 1 && name(left[0]).is_ok_and(|name| name.trim() == "sleep")
    });
    assert_eq!(bandwidth_us(&group).0, 40_000, "{}", daemon.log());
    kill_all(&members(&host, "job"));
    assert_eq!(running.finish(SHORT).code(), 0);
    wait_until("the group has gone", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn command_of_a_killed_run_stays_limited_until_it_ends() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let running = start(
        &host,
        &["--name", "job", "--quota", "40ms/100ms"],
        "exec sleep 600",
    );
    let group = host.normal("job");
    running.kill_hard();
    let left = group.all_processes().unwrap();
    assert!(!left.is_empty());
    assert_eq!(bandwidth_us(&group).0, 40_000);
    kill_all(&left);
    wait_until("the group has gone", SHORT, || daemon.names().is_empty());
    assert!(!group.exists());
    daemon.stop();
}

#[test]
fn many_commands_at_once_all_run_and_nothing_is_left() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let runs: Vec<_> = (0..24)
        .map(|index| {
            let script = format!("exit {index}");
            host.start(sh(&["--class", "batch", "--cap", "30%"], &script))
        })
        .collect();
    for (index, running) in runs.into_iter().enumerate() {
        let finished = running.finish(SHORT);
        assert_eq!(
            finished.code(),
            i32::try_from(index).unwrap(),
            "{finished:?}"
        );
    }
    wait_until("no group is left", SHORT, || daemon.names().is_empty());
    daemon.stop();
}
