//! External changes of kernel files of the daemon's groups.

use std::fs;

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, max, wait_until};
use crate::rig::{Daemon, is_idle, quota_us, rule_of, shown, wait_for_quota};

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

mod v2_only {
    use super::*;

    /// Writes to the file that enables or disables the controller below a cgroup.
    fn switch_controller(above: &CpuGroup, text: &str) {
        fs::write(above.subtree_control(), text).unwrap();
    }

    #[test]
    fn enforce_enables_an_externally_disabled_controller() {
        let mut host = Host::new();
        assert!(host.is_v2(), "cgroup v1 has no such switch");
        let slice = host.group("slice");
        let (web, jobs) = (host.group("slice/web"), host.group("slice/jobs"));
        let text = "enforce = true\n".to_owned()
            + &rule_of("web", &web, "quota = \"30ms/100ms\", headroom = \"30%\"")
            + &rule_of("jobs", &jobs, "class = \"batch\"");
        let daemon = Daemon::start(&host, &text);
        for round in 1..=3 {
            switch_controller(&slice, "-cpu");
            wait_until("it is noticed", || seen(&daemon) >= 2 * round);
            wait_for_quota(&web, 30_000);
            wait_until("it is a batch group again", || {
                jobs.has_idle() && is_idle(&jobs)
            });
            wait_until("it leaves headroom again", || quota_us(&jobs) > 0);
        }
        daemon.stop();
    }
}
