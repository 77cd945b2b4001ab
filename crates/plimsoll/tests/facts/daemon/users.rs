//! Permissions of users who are not operators.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::common::{Finished, Host, Running, binary, wait_until};
use crate::rig::{Daemon, copy_program, is_idle, of_cgroup, quota_us, rule, shown};

const USER: u32 = 65_534;

/// A copy of the binary that any user can execute.
struct Account {
    folder: tempfile::TempDir,
}

impl Account {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(&binary(), &folder.path().join("plimsoll"));
        Self { folder }
    }

    fn run(&self, host: &Host, words: &[&str]) -> Finished {
        let mut command = Command::new(self.folder.path().join("plimsoll"));
        // As root it also drops the groups.
        command.args(words).uid(USER).gid(USER).current_dir("/");
        host.confine(&mut command);
        host.spawn(command).finish()
    }

    fn refused(&self, host: &Host, words: &[&str]) -> String {
        let refused = self.run(host, words);
        assert_eq!(refused.code(), 125, "{words:?}: {refused:?}");
        refused.one_line().to_owned()
    }
}

/// A process of a user.
fn start_as(host: &Host, uid: u32) -> Running {
    let mut command = Command::new("sleep");
    command.arg("600").uid(uid).gid(uid).current_dir("/");
    host.spawn(command)
}

#[test]
fn user_may_not_raise_reload_or_change_others() {
    let mut host = Host::new();
    let (web, home) = (host.group("web"), host.group("home"));
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let ours = host.start_in(&home, ["sleep", "600"]);
    let anothers = start_as(&host, USER - 1);
    let mut daemon = Daemon::start(&host, &text);
    let mine = host.start([
        "run", "--class", "batch", "--name", "mine", "--", "sleep", "600",
    ]);
    wait_until("it runs", || daemon.group("mine").is_some());
    wait_until("it is in its group", || {
        host.batch("mine")
            .all_processes()
            .is_ok_and(|all| !all.is_empty())
    });
    let before = host.snapshot();
    let user = Account::new();
    let name = shown(&web);
    let (ours_pid, anothers_pid) = (ours.pid().to_string(), anothers.pid().to_string());
    for words in [
        &["set", "web", "--quota", "20ms/100ms"][..],
        &["set", "web", "--reset"],
        &["set", &name, "--class", "batch"],
        &["set", &shown(&home), "--class", "batch"],
        &["set", "mine", "--cap", "10%"],
        &["set", &ours_pid, "--class", "batch"],
        &["set", &anothers_pid, "--class", "batch"],
        &["reload"],
        &["run", "--nice", "-5", "--", "true"],
        &["run", "--weight", "1000", "--", "true"],
        &["run", "--headroom", "30%", "--", "true"],
        &["run", "--class", "batch", "--headroom", "30%", "--", "true"],
        &["run", "--name", "web", "--", "true"],
        &["run", "--name", "mine", "--", "true"],
    ] {
        let line = user.refused(&host, words);
        println!("{words:?}: {line}");
        assert_eq!(host.snapshot(), before, "{words:?}");
    }
    assert_eq!(quota_us(&web), 30_000);
    assert!(!is_idle(&home));
    mine.stop();
    ours.kill_hard();
    anothers.kill_hard();
    daemon.end();
}

#[test]
fn group_name_cannot_hide_files_of_the_daemon_or_kernel() {
    let host = Host::new();
    let daemon = Daemon::start(&host, "");
    let user = Account::new();
    for name in ["control", "control.sock", "daemon", "requested", "lock"] {
        let words = ["run", "--cap", "50%", "--name", name, "--", "true"];
        user.run(&host, &words).good();
        wait_until("its group has gone", || daemon.group(name).is_none());
    }
    for name in ["tasks", "cgroup.procs", "cpu.idle"] {
        let line = user.refused(&host, &["run", "--name", name, "--", "true"]);
        assert!(line.contains("a file of the kernel's"), "{line}");
    }
    assert!(host.run(["show"]).good().stdout.lines().count() <= 1);
    daemon.stop();
}

#[test]
fn the_runtime_folder_shows_users_the_socket_and_nothing_else() {
    let mut host = Host::new();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    host.run(["set", "web", "--quota", "40ms/100ms"]).good();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(host.runtime()), 0o711);
    for entry in fs::read_dir(host.runtime()).unwrap().flatten() {
        let expected = if entry.file_name() == "control.sock" {
            0o666
        } else {
            0o600
        };
        assert_eq!(mode(&entry.path()), expected, "{}", entry.path().display());
    }
    host.run(["set", "web", "--reset"]).good();
    daemon.stop();
}
