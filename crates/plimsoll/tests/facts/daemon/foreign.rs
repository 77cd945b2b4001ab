//! External changes of kernel files of the daemon's groups.

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, max, wait_until};
use crate::rig::{Daemon, quota_us, rule_of, shown};

fn write_quota(group: &CpuGroup, quota: &str) {
    group.write_cpu_max(&max(quota)).unwrap();
}

fn seen(daemon: &Daemon) -> u64 {
    daemon.state().daemon.counters.foreign_changes
}

/// Whether a line of a log says that somebody else changed the quota of a group to this one.
fn is_told(log: &str, group: &CpuGroup, quota_us: u32) -> bool {
    let (group, change) = (shown(group), format!("was changed to `{quota_us}"));
    log.lines()
        .any(|line| line.contains(&group) && line.contains(&change))
}

#[test]
fn external_change_is_noticed_reported_and_respected() {
    let mut host = Host::new();
    let (group, other) = (host.group("web"), host.group("other"));
    let text = rule_of("web", &group, "quota = \"30ms/100ms\"")
        + &rule_of("other", &other, "weight = 300");
    let mut daemon = Daemon::start(&host, &text);
    assert_eq!(seen(&daemon), 0);
    for (round, ms) in [60, 70, 80].into_iter().enumerate() {
        write_quota(&group, &format!("{ms}ms/100ms"));
        wait_until("it is noticed", || seen(&daemon) > round as u64);
        assert!(
            is_told(&daemon.log(), &group, ms * 1_000),
            "{}",
            daemon.log()
        );
    }
    // The audit that finds this one is later than any that could undo theirs.
    other.write_weight(50).unwrap();
    wait_until("it is noticed", || seen(&daemon) == 4);
    assert_eq!(quota_us(&group), 80_000, "theirs stays");
    let changes = format!("{:?}", daemon.group(&shown(&group)).unwrap());
    assert!(changes.contains("was changed to `80000"), "{changes}");
    // Until the next explicit apply.
    daemon.reload().good();
    assert_eq!(quota_us(&group), 30_000, "{}", daemon.log());
    let before = seen(&daemon);
    write_quota(&group, "80ms/100ms");
    wait_until("it is noticed again", || seen(&daemon) > before);
    host.run(["set", "web", "--quota", "40ms/100ms"]).good();
    assert_eq!(quota_us(&group), 40_000);
    host.run(["set", "web", "--reset"]).good();
    assert_eq!(quota_us(&group), 30_000);
    daemon.end();
    assert_eq!(quota_us(&group), -1);
}
