//! Reloads: a configuration applies as a whole or not at all.

use nix::sys::signal::Signal;
use plimsoll_engine::knobs::Bandwidth;

use crate::common::{Host, wait_until};
use crate::rig::{Daemon, of_cgroup, quota_us, rule, shown, wait_for_quota};

#[test]
fn sighup_and_reload_both_read_the_file_again() {
    let mut host = Host::new();
    let group = host.group("web");
    let text = |quota: &str| {
        rule(
            "web",
            &of_cgroup(&shown(&group)),
            &format!("quota = \"{quota}\""),
        )
    };
    let daemon = Daemon::start(&host, &text("30ms/100ms"));
    daemon.write(&text("40ms/100ms"));
    daemon.send(Signal::SIGHUP);
    wait_for_quota(&daemon, &group, 40_000);
    daemon.write(&text("50ms/100ms"));
    daemon.reload().good();
    assert_eq!(quota_us(&group), 50_000, "a reload answers when it is done");
    assert_eq!(daemon.state().daemon.counters.reloads, 3);
    daemon.stop();
}

#[test]
fn bad_file_is_reported_in_one_line_and_changes_nothing() {
    let mut host = Host::new();
    let (web, jobs) = (host.group("web"), host.group("jobs"));
    let of = |name: &str, group, knobs: &str| rule(name, &of_cgroup(&shown(group)), knobs);
    let good = of("web", &web, "quota = \"30ms/100ms\"") + &of("jobs", &jobs, "class = \"batch\"");
    let daemon = Daemon::start(&host, &good);
    let running = host.snapshot();
    for (bad, expected) in [
        (of("web", &web, "quota = \"much\""), "`much`"),
        (of("web", &web, "quoat = \"30ms/100ms\""), "quoat"),
        (of("web", &web, "") + &of("web", &jobs, ""), "web"),
        (of("web", &web, "quota = \"40ms/100ms\"") + "[[group]\n", ""),
        (
            of("web", &web, "per-task = true, cap = \"20%\""),
            "per-task",
        ),
        (of("web", &web, "headroom = \"130%\""), "130%"),
    ] {
        // The rest is valid, and differs from the running configuration.
        daemon.write(&(of("other", &jobs, "quota = \"20ms/100ms\"") + &bad));
        let refused = daemon.reload();
        assert_eq!(refused.code(), 125, "{bad}: {refused:?}");
        let line = refused.one_line();
        let file = daemon.config();
        assert!(
            line.contains(file.to_str().unwrap()) && line.contains(expected),
            "{line}"
        );
        assert_eq!(host.snapshot(), running, "{bad}");
    }
    // Includes the position in the file.
    daemon.write_raw("version = 1\n[metrics]\nlisten = \"none\"\n[[group]]\nname = 7\n");
    let refused = daemon.reload();
    let line = refused.one_line();
    assert!(line.contains("plimsoll.toml:5:8"), "{line}");
    let counters = daemon.state().daemon.counters;
    assert_eq!((counters.reloads, counters.reloads_refused), (1, 7));
    // The same by signal; only the log reports it.
    daemon.send(Signal::SIGHUP);
    wait_until("it is counted", || {
        daemon.state().daemon.counters.reloads_refused == 8
    });
    assert_eq!(host.snapshot(), running);
    daemon.write(&good);
    daemon.reload().good();
    assert_eq!(host.snapshot(), running);
    daemon.stop();
}

mod v1_only {
    use super::*;

    #[test]
    fn what_has_failed_is_tried_again_at_once() {
        let mut host = Host::new();
        assert!(!host.is_v2(), "cgroup v2 refuses no quota");
        let (above, group) = (host.group("above"), host.group("above/web"));
        let limit = |quota: &str| Bandwidth::of(quota.parse().unwrap(), None).into();
        above.write_cpu_max(&limit("20ms/100ms")).unwrap();
        let text = rule("web", &of_cgroup(&shown(&group)), "quota = \"50ms/100ms\"");
        let mut daemon = Daemon::start(&host, &text);
        let failures = || daemon.state().daemon.counters.apply_failures;
        // The next attempt of its own is seconds away.
        wait_until("it has failed three times", || failures() >= 3);
        above.write_cpu_max(&limit("max")).unwrap();
        daemon.reload().good();
        assert_eq!(quota_us(&group), 50_000, "{}", daemon.log());
        let problem = daemon.group(&shown(&group)).unwrap().problem;
        assert_eq!(problem, None);
        daemon.end();
        assert_eq!(quota_us(&group), -1);
    }
}
