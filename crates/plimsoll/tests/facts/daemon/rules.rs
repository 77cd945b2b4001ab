//! Matches of groups of the file.

use crate::common::{Host, bandwidth_us, wait_until};
use crate::rig::{Daemon, is_idle, of_cgroup, quota_us, remove_group, rule, shown, wait_for_quota};

#[test]
fn cgroup_glob_matches_its_cgroups_and_no_others() {
    let mut host = Host::new();
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
    // A `*` stops at a `/`. On v2 it has no quota at all.
    let limit = below.read_cpu_max().ok().and_then(|max| max.quota_usec);
    assert_eq!(limit, None);
    assert_eq!(daemon.names(), [shown(&one), shown(&two)]);
    daemon.stop();
}

#[test]
fn unit_pattern_matches_cgroups_of_units() {
    let mut host = Host::new();
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
fn overlap_of_two_groups_is_logged_once_and_shown() {
    let mut host = Host::new();
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
        wait_until("it is forgotten", || daemon.group(&shown(&exact)).is_none());
        exact.create().unwrap();
        wait_for_quota(&exact, 20_000);
    }
    assert_eq!(daemon.log().matches(told).count(), 1, "{}", daemon.log());
    // Without the first group the other one gets it, without an overlap.
    daemon.reload_with(&all);
    assert_eq!(note(&exact), None);
    daemon.reload_with(&text);
    assert_eq!(daemon.log().matches(told).count(), 2, "{}", daemon.log());
    daemon.stop();
}
