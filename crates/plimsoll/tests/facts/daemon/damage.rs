//! Damaged files: a configuration is refused as a whole; of the daemon's own files the valid part
//! applies.

use std::fs;

use crate::common::Host;
use crate::rig::{Daemon, is_idle, of_cgroup, quota_us, rule, shown};

/// Returns the error of `plimsoll daemon` for its configuration. Fails if the daemon starts.
fn refusal(daemon: &Daemon) -> String {
    let config = daemon.config();
    let refused = daemon
        .host
        .run(["daemon", "--config", config.to_str().unwrap()]);
    assert_eq!(refused.code(), 125, "{refused:?}");
    refused.one_line().to_owned()
}

#[test]
fn a_daemon_does_not_start_with_a_broken_configuration() {
    let mut host = Host::new();
    let (web, bad) = (host.group("web"), host.group("bad"));
    let of = |name: &str, group, knobs: &str| rule(name, &of_cgroup(&shown(group)), knobs);
    let daemon = Daemon::ready(&host, "");
    let untouched = host.snapshot();
    let good = of("web", &web, "quota = \"30ms/100ms\"");
    daemon.write(&(good + &of("bad", &bad, "quota = \"much\"")));
    let line = refusal(&daemon);
    let place =
        |line_and_column: &str| format!("{}:{line_and_column}: ", daemon.config().display());
    assert!(line.contains(&place("14:9")), "{line}");
    assert!(
        line.contains("`much`") && line.contains("allowed"),
        "{line}"
    );
    for (damage, expected) in [
        (&b"\xff\xfe not text"[..], "1:1"),
        (b"version = 1\n[[group\nname", "2:8"),
        (b"", "1:1"),
        (b"version = 7", "1:11"),
    ] {
        fs::write(daemon.config(), damage).unwrap();
        let line = refusal(&daemon);
        assert!(line.contains(&place(expected)), "{damage:?}: {line}");
    }
    fs::remove_file(daemon.config()).unwrap();
    let line = refusal(&daemon);
    assert!(line.contains("cannot be read"), "{line}");
    assert_eq!(host.snapshot(), untouched);
}

#[test]
fn a_start_with_a_broken_configuration_undoes_nothing_of_an_earlier_daemon() {
    let mut host = Host::new();
    let (web, jobs) = (host.group("web"), host.group("jobs"));
    let of = |name: &str, group, knobs: &str| rule(name, &of_cgroup(&shown(group)), knobs);
    let good = of("web", &web, "quota = \"30ms/100ms\"") + &of("jobs", &jobs, "class = \"batch\"");
    let mut daemon = Daemon::start(&host, &good);
    daemon.kill_hard();
    let left = host.snapshot();
    let journal = host.runtime().join("daemon+.journal");
    let written = fs::read(&journal).unwrap();
    daemon.write(&good.replace("batch", "bach"));
    assert!(refusal(&daemon).contains("`bach`"));
    assert_eq!(host.snapshot(), left);
    assert_eq!(fs::read(&journal).unwrap(), written);
    assert_eq!((quota_us(&web), is_idle(&jobs)), (30_000, true));
    // The next daemon takes it over, and puts everything back when it stops.
    daemon.write(&good);
    daemon.restart();
    assert_eq!((quota_us(&web), is_idle(&jobs)), (30_000, true));
    daemon.stop();
}

/// Damages a file of a killed daemon, whose group had 40 ms by `set` and 30 ms by its file. Starts
/// another, which gives it `left_us`, and returns its log.
fn start_with_damage(file: &str, damage: &[u8], left_us: i64) -> String {
    let mut host = Host::new();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    host.run(["set", "web", "--quota", "40ms/100ms"]).good();
    daemon.kill_hard();
    let path = host.runtime().join(file);
    assert!(file == "shared.json" || path.exists(), "no {file}");
    fs::write(&path, damage).unwrap();
    daemon.restart();
    assert_eq!(quota_us(&web), left_us, "{}", daemon.log());
    let problems = daemon.state().daemon.problems.join("\n");
    let said = daemon.log() + &problems;
    host.run(["set", "web", "--quota", "50ms/100ms"]).good();
    assert_eq!(quota_us(&web), 50_000);
    host.run(["set", "web", "--reset"]).good();
    daemon.end();
    said
}

#[test]
fn damaged_list_of_set_knobs_is_put_aside_and_reported() {
    for damage in [&b"{\"overrides\": 7}"[..], b"\0\0\0\0"] {
        let said = start_with_damage("requested.json", damage, 30_000);
        assert!(said.contains("requested.json"), "{said}");
    }
}

#[test]
fn damaged_list_of_shared_changes_is_put_aside_and_reported() {
    for damage in [&b"{\"created\": 7}"[..], b"{\"crea"] {
        let said = start_with_damage("shared.json", damage, 40_000);
        assert!(said.contains("shared.json"), "{said}");
    }
}
