//! `kill -9` of the daemon, and panics, which abort it.

use std::sync::mpsc::{TryRecvError, channel};
use std::thread;

use crate::common::{Host, chance, wait_until};
use crate::moments::Changes;
use crate::rig::{Daemon, is_idle, of_cgroup, quota_us, rule, rule_of};

/// Ends of a daemon; every second one is by an abort, and comes again in the middle of its start.
const KILLS: u64 = 100;

#[test]
fn limits_hold_over_kills_at_any_moment_and_match_the_policy_after_the_restart() {
    let mut chance = chance("kill -9");
    let mut host = Host::new();
    let limited: Vec<_> = (0..12)
        .map(|n| host.group(&format!("limited-{n}")))
        .collect();
    let (jobs, main) = (host.group("jobs"), host.group("main"));
    let pattern = of_cgroup(&format!("{}/limited-*", host.base_path()));
    let text = rule("limited", &pattern, "quota = \"30ms/100ms\", weight = 50")
        + &rule_of("jobs", &jobs, "class = \"batch\"")
        + &rule_of("main", &main, "headroom = \"30%\"");
    let is_limited = &|| {
        let all = limited.iter().all(|group| quota_us(group) == 30_000);
        all && is_idle(&jobs) && quota_us(&jobs) > 0
    };
    let burner = host.start_load_in(&jobs, "burn --threads 2 --duration 600s");
    let mut daemon = Daemon::start(&host, &text);
    wait_until("all is limited", is_limited);
    thread::scope(|scope| {
        let (last, samples) = channel::<()>();
        scope.spawn(move || {
            while samples.try_recv() == Err(TryRecvError::Empty) {
                assert!(is_limited(), "a sample without limits");
            }
        });
        for kill in 0..KILLS {
            let is_abort = kill % 2 == 1;
            match is_abort {
                true => daemon.abort(),
                false => daemon.kill_hard(),
            }
            assert!(is_limited(), "after kill {kill}");
            if is_abort {
                let mut changes = Changes::of(host.runtime());
                daemon.launch();
                changes.wait_for(chance.below(8), || host.owner().is_some());
                daemon.abort();
                assert!(is_limited(), "after kill {kill} in a start");
            }
            daemon.restart();
            assert!(is_limited(), "after restart {kill}");
            assert!(
                limited
                    .iter()
                    .all(|group| group.read_weight().unwrap() == 50)
            );
            assert_eq!(quota_us(&main), -1);
        }
        drop(last);
    });
    daemon.stop();
    drop(burner);
}
