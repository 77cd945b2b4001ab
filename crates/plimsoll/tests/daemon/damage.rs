//! Damaged files: what is sound holds, and what is not is told.

use std::fs;

use crate::common::{Host, wait_until};
use crate::rig::{Daemon, SHORT, is_idle, of_cgroup, quota_us, rule, shown};

#[test]
fn of_a_damaged_configuration_the_sound_groups_hold_and_the_rest_is_told() {
    let mut host = Host::shared();
    let (web, jobs, bad) = (host.group("web"), host.group("jobs"), host.group("bad"));
    let of = |name: &str, group, knobs: &str| rule(name, &of_cgroup(&shown(group)), knobs);
    let text = of("web", &web, "quota = \"30ms/100ms\"")
        + &of("bad", &bad, "quota = \"much\"")
        + &of("jobs", &jobs, "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    assert_eq!(quota_us(&web), 30_000, "{}", daemon.log());
    assert!(is_idle(&jobs));
    assert_eq!(quota_us(&bad), -1);
    let problems = daemon.state().daemon.problems.join("\n");
    assert!(problems.contains("`much`"), "{problems}");
    assert!(daemon.log().contains("`much`"));
    let shown = host.run(["show"]).good();
    assert!((shown.stdout + &shown.stderr).contains("`much`"));
    // Mended, it is told no more.
    daemon.reload_with(&text.replace("much", "20ms/100ms"));
    assert_eq!(quota_us(&bad), 20_000);
    assert!(daemon.state().daemon.problems.is_empty());
    daemon.stop();
}

#[test]
fn a_configuration_that_cannot_be_read_at_all_is_told_and_the_daemon_waits_for_another() {
    let mut host = Host::shared();
    let web = host.group("web");
    let good = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::ready(&host, "");
    for damage in [&b"\xff\xfe not text"[..], b"[[group\nname", b""] {
        fs::write(daemon.config(), damage).unwrap();
        daemon.restart();
        assert!(!daemon.state().daemon.problems.is_empty(), "{damage:?}");
        daemon.write(&good);
        daemon.reload().good();
        assert_eq!(quota_us(&web), 30_000);
        daemon.end();
    }
    fs::remove_file(daemon.config()).unwrap();
    daemon.restart();
    assert!(!daemon.state().daemon.problems.is_empty());
    daemon.stop();
}

/// Damages a file of a daemon that was killed, starts another, and returns
/// what that says.
fn start_with_damage(file: &str, damage: &[u8]) -> String {
    let mut host = Host::shared();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    host.run(["set", "web", "--quota", "40ms/100ms"]).good();
    daemon.kill_hard();
    let path = host.runtime().join(file);
    assert!(file == "shared.json" || path.exists(), "no {file}");
    fs::write(&path, damage).unwrap();
    daemon.restart();
    wait_until("the group is limited", SHORT, || quota_us(&web) >= 30_000);
    let problems = daemon.state().daemon.problems.join("\n");
    let said = daemon.log() + &problems;
    host.run(["set", "web", "--quota", "50ms/100ms"]).good();
    assert_eq!(quota_us(&web), 50_000);
    host.run(["set", "web", "--reset"]).good();
    daemon.end();
    said
}

#[test]
fn a_damaged_list_of_what_was_set_is_put_aside_and_told() {
    for damage in [&b"{\"overrides\": 7}"[..], b"", b"\0\0\0\0", b"{\"over"] {
        let said = start_with_damage("remembered.json", damage);
        assert!(said.contains("remembered.json"), "{said}");
    }
}

#[test]
fn a_damaged_list_of_shared_changes_is_put_aside_and_told() {
    for damage in [&b"{\"created\": 7}"[..], b"\0\0\0\0", b"{\"crea"] {
        let said = start_with_damage("shared.json", damage);
        assert!(said.contains("shared.json"), "{said}");
    }
}

#[test]
fn a_damaged_journal_is_told_and_does_not_keep_the_daemon_from_working() {
    for damage in [
        &b"garbage\n"[..],
        b"{\"version\":1}\n{]\n",
        b"\0\0\0\0\0\0\n",
    ] {
        let said = start_with_damage("daemon+.journal", damage);
        assert!(said.contains("journal"), "{said}");
    }
}

#[test]
fn a_journal_that_was_cut_off_is_undone_as_far_as_it_goes() {
    let mut host = Host::shared();
    let (one, two) = (host.group("g1"), host.group("g2"));
    let pattern = format!("{}/g*", host.base_path());
    let mut daemon = Daemon::start(
        &host,
        &rule("all", &of_cgroup(&pattern), "quota = \"30ms/100ms\""),
    );
    daemon.kill_hard();
    let path = host.runtime().join("daemon+.journal");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"write\":{\"path\":\"/x\",\"ol");
    fs::write(&path, bytes).unwrap();
    daemon.write("");
    daemon.restart();
    assert_eq!(
        (quota_us(&one), quota_us(&two)),
        (-1, -1),
        "{}",
        daemon.log()
    );
    daemon.stop();
}
