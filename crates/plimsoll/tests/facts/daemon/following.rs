//! Cgroups that come and go while the daemon runs.

use nix::sys::signal::Signal;
use plimsoll_engine::knobs::Bandwidth;

use crate::common::{Host, wait_until};
use crate::rig::{Daemon, is_idle, of_cgroup, quota_us, remove_group, rule, shown, wait_for_quota};

fn jobs(host: &Host) -> String {
    let pattern = format!("{}/job-*", host.base_path());
    rule("jobs", &of_cgroup(&pattern), "quota = \"30ms/100ms\"")
}

/// Host whose base enables the controller for its children.
fn host_with_children() -> Host {
    let mut host = Host::new();
    host.group("bystander");
    host
}

#[test]
fn recreated_cgroup_inherits_nothing_from_its_predecessor() {
    let mut host = Host::new();
    let web = of_cgroup(&shown(&host.group("web")));
    let web = rule("web", &web, "headroom = \"30%\"");
    let group = host.base().child("job-same");
    let jobs = rule(
        "jobs",
        &of_cgroup(&format!("{}/job-*", host.base_path())),
        "class = \"batch\"",
    );
    let mut daemon = Daemon::ready(&host, &(web + &jobs));
    daemon.restart();
    for _ in 0..3 {
        daemon.send(Signal::SIGSTOP);
        group.create().unwrap();
        // The found values differ from those of a new cgroup.
        group.write_weight(50).unwrap();
        let found = Bandwidth::of("70ms/100ms".parse().unwrap(), None);
        group.write_cpu_max(&found.into()).unwrap();
        daemon.send(Signal::SIGCONT);
        wait_until("it is a batch group", || is_idle(&group));
        // All has been written when it answers; it gets both events at once.
        daemon.state();
        daemon.send(Signal::SIGSTOP);
        remove_group(&group);
        group.create().unwrap();
        daemon.send(Signal::SIGCONT);
        wait_until("it is a batch group again", || is_idle(&group));
        daemon.end();
        assert_eq!(group.read_weight().unwrap(), 100, "{}", daemon.log());
        assert_eq!(quota_us(&group), -1, "{}", daemon.log());
        remove_group(&group);
        daemon.restart();
    }
    daemon.stop();
}

mod v1_only {
    use super::*;

    #[test]
    fn a_renamed_cgroup_goes_by_its_new_name() {
        let host = host_with_children();
        assert!(!host.is_v2(), "cgroup v2 has no renaming");
        let daemon = Daemon::start(&host, &jobs(&host));
        let group = host.base().child("other");
        group.create().unwrap();
        let renamed = host.base().child("job-renamed");
        for (from, to) in group.folders().iter().zip(renamed.folders()) {
            std::fs::rename(from, to).unwrap();
        }
        wait_for_quota(&daemon, &renamed, 30_000);
        remove_group(&renamed);
        wait_until("it is forgotten", || daemon.names().is_empty());
        daemon.stop();
    }
}
