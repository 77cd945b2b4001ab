//! The owner that commands start if none runs: its promises, and kills and stops of it or of
//! commands.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{
    Host, Running, bandwidth_us, binary, command_of, is_alive, membership, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Starts a command in group `job`, with 30 ms of each 100 ms.
fn start_job(host: &Host) -> Running {
    host.sleeper("job", "--quota 30ms/100ms")
}

/// Waits until an owner without groups, started now, has ended by itself. Each earlier owner had
/// the time to do so, too.
fn outlast_an_idle_owner() {
    let host = Host::new();
    let keeper = host.sleeper("keeper", "");
    let owner = host.owner_pid();
    keeper.stop();
    wait_until("the idle owner has ended", || !is_alive(owner));
}

/// The command in group `job`, once it is in all folders.
fn job_of(host: &Host) -> Option<i32> {
    let job = *host.normal("job").processes().ok()?.first()?;
    let name = command_of(job)?;
    let lines = membership(job);
    let is_there = lines.lines().filter(|line| line.ends_with("/plimsoll/job"));
    (name == "sleep" && is_there.count() == host.base().folders().len()).then_some(job)
}

#[test]
fn set_without_a_daemon_stays_in_force_and_reset_starts_the_next_owner() {
    let mut host = Host::new();
    let (group, home) = (host.group("foreign"), host.group("home"));
    let worker = host.start_in(&home, ["sleep", "600"]);
    let target = format!("/{}", group.path().display());
    let pid = worker.pid().to_string();
    let refused = host.run(["set", &target, "--reset"]);
    let line = refused.refusal();
    assert!(line.contains("no daemon runs"), "{line}");
    for target in [&target, &pid] {
        host.run(["set", target, "--quota", "30ms/100ms"]).good();
    }
    let own = host.normal(&format!("pid-{pid}"));
    assert_eq!(own.processes().unwrap(), [worker.pid()]);
    let owner = host.owner_pid();
    outlast_an_idle_owner();
    assert!(is_alive(owner), "it has groups");
    assert_eq!([&group, &own].map(|it| bandwidth_us(it).0), [30_000; 2]);
    for target in [&target, &pid] {
        host.kill_owner();
        host.run(["set", target, "--reset"]).good();
    }
    assert_eq!(bandwidth_us(&group).0, -1);
    assert_eq!(home.processes().unwrap(), [worker.pid()]);
    worker.stop();
    host.assert_clean();
}

#[test]
fn an_owner_on_demand_ends_after_its_last_group() {
    let host = Host::new();
    let running = start_job(&host);
    let owner = host.owner_pid();
    // It has a session of its own, so the end of its client's session does not end it.
    let session = nix::unistd::getsid(Some(Pid::from_raw(owner))).unwrap();
    assert_eq!(session.as_raw(), owner);
    let stat = fs::read_to_string(format!("/proc/{owner}/stat")).unwrap();
    let parent = stat.rsplit(") ").next().unwrap().split(' ').nth(1);
    assert_ne!(parent.unwrap(), running.pid().to_string());
    outlast_an_idle_owner();
    assert!(is_alive(owner), "it has a group");
    running.stop();
    wait_until("it has ended", || !is_alive(owner));
    let files = fs::read_dir(host.runtime()).unwrap().flatten();
    let files: Vec<_> = files.map(|entry| entry.file_name()).collect();
    let is_lock = |name: &std::ffi::OsString| name.to_string_lossy().ends_with("lock");
    assert!(files.iter().all(is_lock), "{files:?}");
    host.assert_clean();
}

#[test]
fn waiting_run_continues_with_the_next_owner() {
    let host = Host::new();
    let words = "run --name job --quota 30ms/100ms -- sh -c";
    let running = host.start(words.split(' ').chain(["sleep 600 & exit 3"]));
    wait_until("it says that it stays", || {
        running.stderr().contains("run on")
    });
    // The shell's child becomes it a moment later.
    wait_until("it sleeps", || job_of(&host).is_some());
    let job = job_of(&host).unwrap();
    for is_killed in [true, false] {
        let owner = host.owner_pid();
        let signal = if is_killed {
            Signal::SIGKILL
        } else {
            Signal::SIGTERM
        };
        send(owner, signal);
        // It does not wait for a busy client.
        wait_until("it has ended", || !is_alive(owner));
        let is_next = || {
            let state = host.owner();
            state.is_some_and(|state| state.daemon.pid.cast_signed() != owner)
        };
        wait_until("there is another", is_next);
        assert_eq!(host.show("job")["statistics"]["processes"], 1);
        assert_eq!(bandwidth_us(&host.normal("job")).0, 30_000);
    }
    send(job, Signal::SIGKILL);
    assert_eq!(running.finish().code(), 3);
    host.assert_clean();
}

#[test]
fn commands_that_start_at_once_have_one_owner() {
    let host = Host::new();
    let folder = tempfile::tempdir().unwrap();
    let binary = crate::common::binary();
    for round in 0..3 {
        // Each names its owner, and keeps it until all have done so.
        let go = folder.path().join(round.to_string());
        let script = r#""$0" show --json; while [ ! -e "$1" ]; do sleep 0.05; done"#;
        let words = ["run", "--cap", "50%", "--", "sh", "-c", script].map(OsStr::new);
        let words = [&words[..], &[binary.as_os_str(), go.as_os_str()]].concat();
        let all: Vec<Running> = (0..8).map(|_| host.start(&words)).collect();
        wait_until("all have named it", || {
            all.iter().all(|running| running.stdout().ends_with("}\n"))
        });
        fs::write(&go, "").unwrap();
        let finished = all.into_iter().map(|running| running.finish().good());
        let owners: BTreeSet<u64> = finished
            .map(|shown| {
                assert_eq!(shown.stderr, "", "round {round}");
                shown.json()["daemon"]["pid"].as_u64().unwrap()
            })
            .collect();
        assert_eq!(owners.len(), 1, "round {round}: {owners:?}");
        host.assert_clean();
    }
}

#[test]
fn owner_started_from_a_group_leaves_it() {
    let host = Host::new();
    let folder = tempfile::tempdir().unwrap();
    let (gate, done) = (folder.path().join("gate"), folder.path().join("done"));
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = r#"read -r line <"$1"; "$0" run --name inner -- true; touch "$2"; exec sleep 600"#;
    let binary = crate::common::binary();
    let words = "run --name outer --quota 30ms/100ms -- sh -c";
    let words = words.split(' ').chain([script]).map(PathBuf::from);
    let running = host.start(words.chain([binary, gate.clone(), done.clone()]));
    let group = host.normal("outer");
    let is_shell = |pid: &i32| command_of(*pid).as_deref() == Some("sh");
    wait_until("it runs", || {
        group.processes().is_ok_and(|all| all.iter().any(is_shell))
    });
    host.kill_owner();
    fs::write(&gate, "go\n").unwrap();
    wait_until("it has started another", || done.exists());
    assert_eq!(running.stderr(), "");
    let owner = host.owner_pid();
    let members = group.all_processes().unwrap();
    assert!(!members.is_empty() && !members.contains(&owner));
    assert!(!membership(owner).contains("/plimsoll/"), "{owner}");
    running.stop();
    wait_until("everything is as it was", || host.is_clean());
}

#[test]
fn an_owner_that_is_stopped_is_named() {
    let host = Host::new();
    let running = start_job(&host);
    let owner = host.owner_pid();
    send(owner, Signal::SIGSTOP);
    let told = format!("process {owner}, is stopped; `kill -CONT {owner}` continues it");
    // At once, because each waits a while for the owner.
    let all = [
        "run -- true",
        "set job --quota 20ms/100ms",
        "set job --reset",
        "show job",
        "show",
        "show --json",
        "top --once",
        "restore",
        "daemon",
    ];
    let all = all.map(|words| (words, host.start(words.split(' '))));
    for (words, running) in all {
        let finished = running.finish();
        assert!(finished.refusal().contains(&told), "{words}: {finished:?}");
        assert_eq!(finished.stdout, "", "{words}");
    }
    assert_eq!(bandwidth_us(&host.normal("job")).0, 30_000);
    send(owner, Signal::SIGCONT);
    host.run(["set", "job", "--quota", "20ms/100ms"]).good();
    assert_eq!(bandwidth_us(&host.normal("job")).0, 20_000);
    running.stop();
    host.assert_clean();
}

#[test]
fn a_second_daemon_is_refused() {
    let host = Host::new();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("plimsoll.toml");
    let text = "version = 1\nenforcer = \"cgroup\"\n[metrics]\nlisten = \"none\"\n";
    fs::write(&config, text).unwrap();
    let words = ["daemon", "--config", config.to_str().unwrap()];
    let first = host.start(words);
    wait_until("it answers", || host.owner().is_some());
    let before = host.snapshot();
    let second = host.run(words);
    let told = format!("a daemon runs already (pid {})", first.pid());
    assert!(second.refusal().contains(&told), "{second:?}");
    // With another runtime folder it finds no socket, but the same cgroups.
    let other = tempfile::tempdir().unwrap();
    let all = [&words[..], &["run", "--", "true"]].map(|words| {
        let mut command = host.plimsoll(words);
        command.env("PLIMSOLL_RUNTIME_DIR", other.path());
        host.spawn(command)
    });
    for refused in all.map(Running::finish) {
        let line = refused.refusal();
        assert!(line.contains("another process owns the cgroups"), "{line}");
    }
    assert_eq!(host.snapshot(), before);
    first.stop().good();
    host.assert_clean();
}

/// An upgrade deletes the program of a command that runs.
#[test]
fn command_whose_program_was_deleted_starts_an_owner() {
    let host = Host::new();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("plimsoll");
    // By another process: children of this one could have the copy open for writing, which prevents
    // its execution.
    let mut copy = Command::new("cp");
    assert!(copy.arg(binary()).arg(&program).status().unwrap().success());
    let mut command = Command::new(&program);
    let words = "run --name job --quota 30ms/100ms -- sleep 600";
    host.confine(command.args(words.split(' ')));
    let running = host.spawn(command);
    wait_until("it runs", || job_of(&host).is_some());
    fs::remove_file(&program).unwrap();
    host.kill_owner();
    running.send(Signal::SIGTERM);
    let finished = running.finish();
    assert_eq!(finished.stderr, "", "{finished:?}");
    host.assert_clean();
}

/// The owner's working folder differs from the caller's.
#[test]
fn runtime_folder_with_a_relative_path_is_the_callers() {
    let host = Host::new();
    let folder = host.runtime();
    let mut command = host.plimsoll(["run", "--", "sleep", "600"]);
    command.env("PLIMSOLL_RUNTIME_DIR", folder.file_name().unwrap());
    command.current_dir(folder.parent().unwrap());
    let mut running = host.spawn(command);
    wait_until("the owner is where the client looks", || {
        assert!(running.is_running());
        host.owner().is_some_and(|it| it.groups.len() == 1)
    });
    running.stop();
    host.assert_clean();
}
