//! Headroom that batch groups leave to other groups.

use crate::common::{Host, wait_until};
use crate::rig::{Daemon, is_idle, of_cgroup, quota_us, rule, shown};

#[test]
fn headroom_limits_batch_groups_until_its_group_ends() {
    let mut host = Host::new();
    let jobs = host.group("jobs");
    let limited = host.group("limited");
    let base = host.base_path();
    let text = rule(
        "main",
        &of_cgroup(&format!("{base}/main")),
        "headroom = \"30%\"",
    ) + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"")
        + &rule("other", &of_cgroup(&shown(&limited)), "class = \"normal\"");
    let daemon = Daemon::start(&host, &text);
    assert!(is_idle(&jobs));
    assert_eq!(quota_us(&jobs), -1, "nobody asks for room yet");
    let main = host.base().child("main");
    for _ in 0..3 {
        main.create().unwrap();
        wait_until("batch work is limited", || quota_us(&jobs) > 0);
        wait_until("the controller tells", || {
            let headroom = daemon.state().headroom;
            headroom.is_some_and(|headroom| headroom.headroom_ppm == 300_000)
        });
        assert_eq!(quota_us(&main), -1, "a service group needs nothing itself");
        assert_eq!(quota_us(&limited), -1, "normal groups leave nothing");
        crate::rig::remove_group(&main);
        wait_until("its quota is as it was found", || quota_us(&jobs) == -1);
        assert!(is_idle(&jobs));
    }
    daemon.stop();
}

#[test]
fn headroom_limits_batch_groups_that_start_later() {
    let mut host = Host::new();
    let main = host.group("main");
    let base = host.base_path();
    let text = rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule(
            "jobs",
            &of_cgroup(&format!("{base}/job-*")),
            "class = \"batch\"",
        );
    let daemon = Daemon::start(&host, &text);
    let job = host.base().child("job-1");
    job.create().unwrap();
    wait_until("it is limited", || is_idle(&job) && quota_us(&job) > 0);
    crate::rig::remove_group(&job);
    wait_until("it is forgotten", || daemon.group(&shown(&job)).is_none());
    daemon.stop();
}

#[test]
fn largest_headroom_of_all_groups_applies() {
    let mut host = Host::new();
    let (one, two, jobs) = (host.group("one"), host.group("two"), host.group("jobs"));
    let text = |two_asks: &str| {
        rule("one", &of_cgroup(&shown(&one)), "headroom = \"20%\"")
            + &rule("two", &of_cgroup(&shown(&two)), two_asks)
            + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"")
    };
    let daemon = Daemon::start(&host, &text("headroom = \"45%\""));
    let ppm = || daemon.state().headroom.map(|sample| sample.headroom_ppm);
    assert_eq!(ppm(), Some(450_000), "{}", daemon.log());
    daemon.reload_with(&text("headroom = \"10%\""));
    assert_eq!(ppm(), Some(200_000));
    daemon.reload_with(&rule(
        "jobs",
        &of_cgroup(&shown(&jobs)),
        "class = \"batch\"",
    ));
    assert_eq!(quota_us(&jobs), -1);
    daemon.stop();
}

#[test]
fn earlier_quota_of_a_batch_group_is_restored() {
    let mut host = Host::new();
    let (main, jobs) = (host.group("main"), host.group("jobs"));
    let old = plimsoll_engine::knobs::Bandwidth::of(
        "90ms/100ms".parse().unwrap(),
        Some("20ms".parse().unwrap()),
    );
    jobs.write_cpu_max(&old.into()).unwrap();
    let text = rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    wait_until("the controller has written", || quota_us(&jobs) != 90_000);
    daemon.reload_with("");
    assert_eq!(jobs.read_cpu_max().unwrap(), old.into());
    daemon.stop();
}
