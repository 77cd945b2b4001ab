//! Matches of groups of the file.

use std::os::unix::process::CommandExt as _;

use crate::common::{Host, bandwidth_us, wait_until};
use crate::rig::{
    Daemon, SHORT, Sleeper, is_idle, is_in, kill_all, members, of_cgroup, quota_us, remove_group,
    rule, shown, wait_for_quota, wait_until_in,
};

/// A user without other processes on the machine.
const SOMEBODY: u32 = 54_321;

/// The one of util-linux, because a busybox shell prefers its own, which lacks the option.
const SETPRIV: &str = "/usr/bin/setpriv";

#[test]
fn cgroup_glob_matches_its_cgroups_and_no_others() {
    let mut host = Host::shared();
    let (one, two, other) = (host.group("job-1"), host.group("job-2"), host.group("web"));
    let below = host.group("job-1/part");
    let pattern = format!("{}/job-*", host.base_path());
    let text = rule(
        "jobs",
        &of_cgroup(&pattern),
        "quota = \"30ms/100ms\", burst = \"10ms\"",
    );
    let daemon = Daemon::start(&host, &text);
    assert_eq!(bandwidth_us(&one), (30_000, 100_000, 10_000));
    assert_eq!(bandwidth_us(&two), (30_000, 100_000, 10_000));
    assert_eq!(quota_us(&other), -1);
    // A `*` stops at a `/`. On v2 it has no quota to look at.
    assert!(host.is_v2() || quota_us(&below) == -1);
    assert_eq!(daemon.names(), [shown(&one), shown(&two)]);
    daemon.stop();
}

#[test]
fn unit_pattern_matches_cgroups_of_units() {
    let mut host = Host::shared();
    let unit = format!("encode-{}", std::process::id());
    let job = host.group(&format!("{unit}-a.service"));
    let inside = host.group(&format!("{unit}-a.service/worker"));
    let other = host.group("other.service");
    let matches = format!("unit = \"{unit}-*.service\"");
    let daemon = Daemon::start(&host, &rule("encode", &matches, "class = \"batch\""));
    assert!(is_idle(&job), "{}", daemon.log());
    assert!(!is_idle(&other));
    drop(inside);
    daemon.stop();
}

#[test]
fn first_matching_group_of_the_file_gets_a_cgroup() {
    let mut host = Host::shared();
    let (exact, rest) = (host.group("a"), host.group("b"));
    let base = host.base_path();
    let text = rule(
        "exact",
        &of_cgroup(&format!("{base}/a")),
        "quota = \"20ms/100ms\"",
    ) + &rule(
        "all",
        &of_cgroup(&format!("{base}/*")),
        "quota = \"40ms/100ms\"",
    );
    let daemon = Daemon::start(&host, &text);
    assert_eq!((quota_us(&exact), quota_us(&rest)), (20_000, 40_000));
    assert_eq!(daemon.group(&shown(&exact)).unwrap().group, "exact");
    assert_eq!(daemon.group(&shown(&rest)).unwrap().group, "all");
    daemon.stop();
}

#[test]
fn overlap_of_two_groups_is_logged_once_and_shown() {
    let mut host = Host::shared();
    let (exact, rest) = (host.group("a"), host.group("b"));
    let base = host.base_path();
    let all = rule(
        "all",
        &of_cgroup(&format!("{base}/*")),
        "quota = \"40ms/100ms\"",
    );
    let text = rule(
        "exact",
        &of_cgroup(&format!("{base}/a")),
        "quota = \"20ms/100ms\"",
    ) + &all;
    let daemon = Daemon::start(&host, &text);
    let note = |group| daemon.group(&shown(group)).unwrap().note;
    let told = "group `all` of the file matches it, too; `exact` applies, which comes first";
    assert_eq!(note(&exact).as_deref(), Some(told));
    assert_eq!(note(&rest), None);
    // The overlap is intended by the file, so no problem is reported.
    assert_eq!(daemon.group(&shown(&exact)).unwrap().problem, None);
    // A repeatedly recreated cgroup is not logged again.
    for _ in 0..3 {
        remove_group(&exact);
        wait_until("it is forgotten", SHORT, || {
            daemon.group(&shown(&exact)).is_none()
        });
        exact.create().unwrap();
        wait_for_quota(&daemon, &exact, 20_000);
    }
    assert_eq!(daemon.log().matches(told).count(), 1, "{}", daemon.log());
    // Without the first group the other one gets it, without an overlap.
    daemon.reload_with(&all);
    assert_eq!(note(&exact), None);
    daemon.reload_with(&text);
    assert_eq!(daemon.log().matches(told).count(), 2, "{}", daemon.log());
    daemon.stop();
}

#[test]
fn every_kernel_knob_is_applied_to_a_matched_cgroup() {
    let mut host = Host::shared();
    let groups = ["w", "b", "c", "q"].map(|name| host.group(name));
    let base = host.base_path();
    let rule = |name: &str, knobs| rule(name, &of_cgroup(&format!("{base}/{name}")), knobs);
    let text = rule("w", "weight = 300")
        + &rule("b", "class = \"batch\"")
        + &rule("c", "cap = \"25%\"")
        + &rule("q", "cpu-max = \"30000 50000 10000\"");
    let daemon = Daemon::start(&host, &text);
    assert_eq!(groups[0].read_weight().unwrap(), 300, "{}", daemon.log());
    assert!(is_idle(&groups[1]));
    let (quota, period, _) = bandwidth_us(&groups[2]);
    assert_eq!(quota * 4, i64::try_from(period).unwrap());
    assert_eq!(bandwidth_us(&groups[3]), (30_000, 50_000, 10_000));
    daemon.stop();
}

#[test]
fn executable_matches_processes_in_any_cgroup() {
    let mut host = Host::shared();
    let home = host.group("home");
    let by_path = Sleeper::new(&format!("plimsoll-path-{}", std::process::id()));
    let by_name = Sleeper::new(&format!("plimsoll-name-{}", std::process::id()));
    let before = host.start_in(&home, by_path.words());
    let file_name = by_name.path().rsplit('/').next().unwrap();
    let text = rule(
        "by-path",
        &format!("executable = \"{}\"", by_path.path()),
        "class = \"batch\"",
    ) + &rule(
        "by-name",
        &format!("executable = \"{file_name}\""),
        "quota = \"50ms/100ms\"",
    );
    let daemon = Daemon::start(&host, &text);
    // An earlier one, and a later one.
    wait_until_in(&daemon, before.pid(), "by-path");
    let later = host.start_in(&home, by_name.words());
    wait_until_in(&daemon, later.pid(), "by-name");
    wait_for_quota(&daemon, &host.normal("by-name"), 50_000);
    let bystander = host.start_in(&home, ["sleep", "600"]);
    assert!(!is_in(&host, bystander.pid(), "by-path"));
    // The snapshot verifies that released processes are back.
    later.kill_hard();
    bystander.kill_hard();
    daemon.stop();
    assert!(home.processes().unwrap().contains(&before.pid()));
}

#[test]
fn user_matches_processes() {
    let mut host = Host::shared();
    let home = host.group("home");
    let text = rule(
        "theirs",
        &format!("user = \"{SOMEBODY}\""),
        "class = \"batch\"",
    );
    let sleeper = Sleeper::new("sleeper");
    let daemon = Daemon::start(&host, &text);
    let mut command = sleeper.command();
    command.uid(SOMEBODY).gid(SOMEBODY);
    let theirs = host.spawn(command);
    let ours = host.start_in(&home, sleeper.words());
    wait_until_in(&daemon, theirs.pid(), "theirs");
    assert!(!is_in(&host, ours.pid(), "theirs"));
    ours.kill_hard();
    theirs.kill_hard();
    daemon.stop();
}

#[test]
fn process_is_matched_after_it_changes_its_user() {
    let mut host = Host::shared();
    let home = host.group("home");
    let uid = SOMEBODY + 1;
    let text = rule("theirs", &format!("user = {uid}"), "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    // `setpriv` changes the user in the process that runs on.
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let words = [SETPRIV, &ids[0], &ids[1], "--clear-groups", "sleep", "600"];
    let theirs = host.start_in(&home, words);
    wait_until_in(&daemon, theirs.pid(), "theirs");
    theirs.kill_hard();
    daemon.stop();
}

#[test]
fn command_matches_processes() {
    let mut host = Host::shared();
    let home = host.group("home");
    let mark = format!("mark-{}", std::process::id());
    let matches = format!("command = \"sh -c sleep*{mark}*\"");
    let daemon = Daemon::start(&host, &rule("marked", &matches, "class = \"batch\""));
    let script = |mark: &str| format!("sleep 600; : {mark}");
    let marked = host.start_in(&home, ["sh", "-c", &script(&mark)]);
    let other = host.start_in(&home, ["sh", "-c", &script("other")]);
    wait_until_in(&daemon, marked.pid(), "marked");
    assert!(!is_in(&host, other.pid(), "marked"));
    // Children of a member are members.
    wait_until("its child is there, too", SHORT, || {
        members(&host, "marked").len() >= 2
    });
    marked.kill_hard();
    other.kill_hard();
    kill_all(&members(&host, "marked"));
    kill_all(&home.processes().unwrap());
    wait_until("all have ended", SHORT, || {
        home.processes().unwrap().is_empty()
    });
    daemon.stop();
}

#[test]
fn all_keys_of_a_match_must_match() {
    let mut host = Host::shared();
    let (inside, outside) = (host.group("in"), host.group("out"));
    let sleeper = Sleeper::new(&format!("plimsoll-both-{}", std::process::id()));
    let matches = format!(
        "cgroup = \"{}\", executable = \"{}\"",
        shown(&inside),
        sleeper.path()
    );
    let daemon = Daemon::start(&host, &rule("both", &matches, "class = \"batch\""));
    let neither = host.start_in(&outside, sleeper.words());
    let both = host.start_in(&inside, sleeper.words());
    wait_until_in(&daemon, both.pid(), "both");
    assert!(!is_in(&host, neither.pid(), "both"));
    both.kill_hard();
    neither.kill_hard();
    daemon.stop();
}
