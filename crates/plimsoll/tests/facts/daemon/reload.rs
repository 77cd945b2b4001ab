//! Reloads: a configuration applies as a whole or not at all.

use nix::sys::signal::Signal;

use crate::common::{Host, is_alive, wait_until};
use crate::rig::{Daemon, quota_us, rule_of, wait_for_quota};

#[test]
fn sighup_and_reload_both_read_the_file_again_or_refuse_it_whole() {
    let mut host = Host::new();
    let group = host.group("web");
    let text = |quota: &str| rule_of("web", &group, &format!("quota = \"{quota}\""));
    let daemon = Daemon::start(&host, &text("30ms/100ms"));
    daemon.write(&text("40ms/100ms"));
    daemon.send(Signal::SIGHUP);
    wait_for_quota(&group, 40_000);
    daemon.write(&text("50ms/100ms"));
    let reloaded = daemon.reload().good();
    assert_eq!(quota_us(&group), 50_000, "a reload answers when it is done");
    let told = "plimsoll.toml: 1 group of the file, 1 in force\n";
    assert!(reloaded.stdout.ends_with(told), "{reloaded:?}");
    let counters = || daemon.state().daemon.counters;
    assert_eq!((counters().reloads, counters().reloads_refused), (3, 0));
    // A file with a mistake is refused whole; after a signal only the log reports it.
    daemon.write(&(text("60ms/100ms") + "[[group]]\nname = 7\n"));
    let refused = daemon.reload();
    let config = daemon.config().display().to_string();
    assert!(refused.refusal().contains(&config), "{refused:?}");
    daemon.send(Signal::SIGHUP);
    wait_until("it is counted", || counters().reloads_refused == 2);
    assert_eq!((quota_us(&group), counters().reloads), (50_000, 3));
    // It ends by this as by SIGTERM.
    daemon.send(Signal::SIGINT);
    wait_until("it has ended", || !is_alive(daemon.pid()));
    daemon.stop();
}
