//! Users who are not operators, and what they see of the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::account::{Account, USER};
use crate::common::{Host, wait_until};
use crate::rig::{Daemon, quota_us, rule_of, shown};

#[test]
fn no_request_of_a_user_who_is_not_an_operator_is_answered() {
    let mut host = Host::new();
    let (web, home) = (host.group("web"), host.group("home"));
    let text = rule_of("web", &web, "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    let before = host.snapshot();
    let user = Account::new(USER);
    let refused = |words: &[&str]| {
        let mut command = user.plimsoll(words);
        host.confine(&mut command);
        let refused = host.spawn(command).finish();
        assert_eq!(refused.code(), 125, "{words:?}: {refused:?}");
        refused.one_line().to_owned()
    };
    for words in [
        &["show"][..],
        &["show", "web"],
        &["set", "web", "--quota", "20ms/100ms"],
        &["set", "web", "--reset"],
        &["set", &shown(&home), "--class", "batch"],
        &["set", "--all", "--burst-enabled", "no"],
        &["reload"],
        &["run", "--", "true"],
    ] {
        let line = refused(words);
        assert!(line.contains("ermission"), "{words:?}: {line}");
        assert_eq!(host.snapshot(), before, "{words:?}");
    }
    assert_eq!(quota_us(&web), 30_000);
    // The machine's counters are shown to everybody.
    let mut top = user.plimsoll(&["top", "--once"]);
    host.confine(&mut top);
    let top = host.spawn(top).finish().good();
    assert!(top.stdout.contains("does not answer this user"), "{top:?}");
    daemon.end();
}

#[test]
fn group_name_cannot_hide_files_of_the_daemon_or_kernel() {
    let host = Host::new();
    let daemon = Daemon::start(&host, "");
    for name in ["control", "control.sock", "daemon", "requested", "lock"] {
        let words = ["run", "--cap", "50%", "--name", name, "--", "true"];
        host.run(words).good();
        wait_until("its group has gone", || daemon.group(name).is_none());
    }
    for name in ["tasks", "cgroup.procs", "cpu.idle"] {
        let refused = host.run(["run", "--name", name, "--", "true"]);
        assert_eq!(refused.code(), 125, "{refused:?}");
        let line = refused.one_line();
        assert!(line.contains("a file of the kernel's"), "{line}");
    }
    assert!(host.run(["show"]).good().stdout.lines().count() <= 1);
    daemon.stop();
}

#[test]
fn the_runtime_folder_shows_operators_the_socket_and_nothing_else() {
    let mut host = Host::new();
    let web = host.group("web");
    let text = rule_of("web", &web, "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    host.run(["set", "web", "--quota", "40ms/100ms"]).good();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(host.runtime()), 0o711);
    let group = nix::unistd::Group::from_name("plimsoll").unwrap();
    let of_socket = if group.is_some() { 0o660 } else { 0o600 };
    for entry in fs::read_dir(host.runtime()).unwrap().flatten() {
        let is_socket = entry.file_name() == "control.sock";
        let expected = if is_socket { of_socket } else { 0o600 };
        assert_eq!(mode(&entry.path()), expected, "{}", entry.path().display());
    }
    host.run(["set", "web", "--reset"]).good();
    daemon.stop();
}
