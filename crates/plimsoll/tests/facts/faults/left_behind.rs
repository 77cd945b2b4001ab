//! Unexpected files in the runtime folder, and its removal.

use std::fs;

use crate::common::Host;
use crate::rig::{Daemon, of_cgroup, quota_us, remove_group, rule, rule_of, wait_for_quota};

#[test]
fn limits_stay_and_are_undone_without_the_runtime_folder() {
    let mut host = Host::new();
    let web = host.group("web");
    let base = host.base_path();
    let text = rule_of("web", &web, "quota = \"30ms/100ms\"")
        + &rule(
            "later",
            &of_cgroup(&format!("{base}/later-*")),
            "quota = \"40ms/100ms\"",
        );
    let mut daemon = Daemon::start(&host, &text);
    fs::remove_dir_all(host.runtime()).unwrap();
    let later = host.base().child("later-1");
    later.create().unwrap();
    // Changes without a journal could not be undone after a kill, which is reported.
    wait_for_quota(&later, 40_000);
    let folder = host.runtime().display().to_string();
    daemon.wait_for_log(&format!(
        "{folder}: was removed, and the undo journal with it"
    ));
    assert!(daemon.is_running(), "{}", daemon.log());
    assert_eq!(quota_us(&web), 30_000);
    daemon.send(nix::sys::signal::Signal::SIGTERM);
    daemon.wait_until_it_ended();
    assert_eq!(
        (quota_us(&web), quota_us(&later)),
        (-1, -1),
        "{}",
        daemon.log()
    );
    daemon.restart();
    assert_eq!(quota_us(&web), 30_000);
    remove_group(&later);
    daemon.stop();
}
