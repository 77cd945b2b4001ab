//! A damaged configuration undoes nothing.

use std::fs;

use crate::common::Host;
use crate::rig::{Daemon, is_idle, of_cgroup, quota_us, rule, shown};

/// Returns the error of `plimsoll daemon` for its configuration. Fails if the daemon starts.
fn refusal(daemon: &Daemon) -> String {
    let config = daemon.config();
    let refused = daemon
        .host
        .run(["daemon", "--config", config.to_str().unwrap()]);
    assert_eq!(refused.code(), 125, "{refused:?}");
    refused.one_line().to_owned()
}

#[test]
fn a_start_with_a_broken_configuration_undoes_nothing_of_an_earlier_daemon() {
    let mut host = Host::new();
    let (web, jobs) = (host.group("web"), host.group("jobs"));
    let of = |name: &str, group, knobs: &str| rule(name, &of_cgroup(&shown(group)), knobs);
    let good = of("web", &web, "quota = \"30ms/100ms\"") + &of("jobs", &jobs, "class = \"batch\"");
    let mut daemon = Daemon::start(&host, &good);
    daemon.kill_hard();
    let left = host.snapshot();
    let journal = host.runtime().join("daemon+.journal");
    let written = fs::read(&journal).unwrap();
    daemon.write(&good.replace("batch", "bach"));
    assert!(refusal(&daemon).contains("`bach`"));
    assert_eq!(host.snapshot(), left);
    assert_eq!(fs::read(&journal).unwrap(), written);
    assert_eq!((quota_us(&web), is_idle(&jobs)), (30_000, true));
    // The next daemon takes it over, and puts everything back when it stops.
    daemon.write(&good);
    daemon.restart();
    assert_eq!((quota_us(&web), is_idle(&jobs)), (30_000, true));
    daemon.stop();
}
