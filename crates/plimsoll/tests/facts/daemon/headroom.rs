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
