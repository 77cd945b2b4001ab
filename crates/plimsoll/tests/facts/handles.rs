//! Targets of requests: the process or cgroup that the client means, and those that get no limits.

use std::fs;
use std::path::Path;

use crate::common::{Host, Running, command_of, knob, membership, wait_until, with_own_mounts};
use crate::rig::kill_all;
use plimsoll_engine::tasks::{TaskKind, children, kind};

/// Starts a script in namespaces of its own, with the words after `--` of unshare(1).
fn start_apart(host: &Host, namespaces: &[&str], script: &str) -> Running {
    let mut command = with_own_mounts(r#"exec "$@""#);
    command.args(["sh", "unshare"]).args(namespaces);
    command.args(["--", "sh", "-ec", script]);
    host.confine(&mut command);
    command.env("PLIMSOLL", crate::common::binary());
    host.spawn(command)
}

/// Pid of a process in the innermost namespace, as its last number of `NSpid` (proc_pid_status(5)).
fn inner_pid(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.unwrap().split_whitespace().last().unwrap().to_owned()
}

#[test]
fn pid_of_a_request_is_the_clients() {
    let host = Host::new();
    // The owner is outside of the namespace.
    let keeper = host.sleeper("keeper", "--cap 50%");
    let script = r#"sleep 600 & $PLIMSOLL set $! --cap 20% --json
        $PLIMSOLL show $! --json >/dev/null
        $PLIMSOLL run --cap 30% -- sleep 600 & wait"#;
    let inside = start_apart(&host, &["-p", "-f", "--mount-proc"], script);
    let group_of = |start: &str| {
        let state = host.owner()?;
        let name = state.groups.into_iter().map(|group| group.name);
        name.into_iter().find(|name| name.starts_with(start))
    };
    for (start, what) in [
        ("pid-", "it is limited"),
        ("sleep-", "a command runs there"),
    ] {
        wait_until(what, || group_of(start).is_some());
        let name = group_of(start).unwrap();
        let pid: i32 = name[start.len()..].parse().unwrap();
        assert!(membership(pid).contains(&name), "{}", membership(pid));
        assert_ne!(
            inner_pid(pid),
            pid.to_string(),
            "it is in a namespace of its own"
        );
        wait_until("it is the command", || command_of(pid).unwrap() == "sleep");
    }
    // With the first process of a namespace all in it end.
    kill_all(&children(inside.pid()));
    inside.finish();
    keeper.stop();
    wait_until("the groups have ended", || {
        host.owner().is_none_or(|it| it.groups.is_empty())
    });
}

#[test]
fn owner_that_sees_the_processes_of_another_namespace_takes_none() {
    let host = Host::new();
    // Its `/proc` has other numbers than its `cgroup.procs`.
    let script = "$PLIMSOLL run --cap 10% -- true";
    let refused = start_apart(&host, &["-p", "-f"], script).finish();
    assert!(
        refused.refusal().contains("/proc of another PID namespace"),
        "{refused:?}"
    );
}

#[test]
fn cgroup_of_a_request_is_the_clients() {
    let mut host = Host::new();
    let keeper = host.sleeper("keeper", "--cap 50%");
    let (pod, inner) = (host.group("pod"), host.group("pod/a"));
    let home = host.group("pod/client");
    // The owner sees another cgroup under the client's path.
    let namesake = host.group("a");
    let path = format!("/{}", namesake.path().display());
    // As a container sees its cgroup: at the mount point.
    let points = host.hierarchy().folders(Path::new(""));
    let folders = pod.folders().into_iter().zip(home.folders()).zip(points);
    let mounts = folders.map(|((pod, home), point)| {
        let (pod, home, point) = (pod.display(), home.display(), point.display());
        format!("echo $$ >{home}/cgroup.procs; mount --bind {pod} {point}\n")
    });
    let set = "unset PLIMSOLL_CGROUP_BASE; $PLIMSOLL set /a --weight 300; $PLIMSOLL show /a >&2";
    let mut command = with_own_mounts(&format!("set -e\n{}{set}", mounts.collect::<String>()));
    host.confine(&mut command);
    command.env("PLIMSOLL", crate::common::binary());
    let before = knob(&namesake, "cpu.weight");
    host.spawn(command).finish().good();
    assert_eq!(inner.read_weight().unwrap(), 300);
    assert_eq!(knob(&namesake, "cpu.weight"), before, "{path}");
    host.run(["set", &format!("/{}", inner.path().display()), "--reset"])
        .good();
    keeper.stop();
}

#[test]
fn what_others_depend_on_gets_no_limits() {
    let host = Host::new();
    let refused = |target: i32, why: &str| {
        let refused = host.run(["set", &target.to_string(), "--cap", "10%"]);
        assert!(refused.refusal().contains(why), "{target}: {refused:?}");
    };
    let keeper = host.sleeper("keeper", "--cap 50%");
    refused(host.owner_pid(), "Plimsoll's own daemon");
    refused(1, "process 1");
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let thread = pids.into_iter().find_map(|pid| match kind(pid) {
        Some(TaskKind::KernelThread(name)) => Some((pid, name)),
        _ => None,
    });
    // A container sees none.
    if let Some((pid, name)) = thread {
        refused(pid, &format!("the kernel thread {name}"));
    }
    let thread = nix::unistd::gettid().as_raw();
    refused(thread, &format!("thread of process {}", std::process::id()));
    let mut zombie = std::process::Command::new("true").spawn().unwrap();
    let pid = zombie.id().cast_signed();
    wait_until("it has ended", || kind(pid) == Some(TaskKind::Zombie));
    refused(pid, "is a zombie");
    zombie.wait().unwrap();
    refused(pid, "no such process");
    keeper.stop();
}
