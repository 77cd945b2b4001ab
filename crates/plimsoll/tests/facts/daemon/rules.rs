//! Matches of groups of the file.

use crate::common::{Host, wait_until};
use crate::rig::{Daemon, of_cgroup, remove_group, rule, shown, wait_for_quota};

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
    let table = host.run(["show"]).good().stdout;
    assert!(table.contains(told), "{table}");
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
