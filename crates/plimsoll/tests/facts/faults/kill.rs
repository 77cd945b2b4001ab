//! `kill -9` of the daemon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, Looks, SetOnDrop, chance, wait_until};
use crate::moments::Changes;
use crate::rig::{
    Daemon, is_idle, of_cgroup, quota_us, remove_group, rule, rule_of, wait_for_quota,
};

/// Kills of a running daemon.
const KILLS: u64 = 6;

struct Scene {
    limited: Vec<CpuGroup>,
    jobs: CpuGroup,
    main: CpuGroup,
    bystander: CpuGroup,
    text: String,
}

impl Scene {
    fn new(host: &mut Host) -> Self {
        let limited = (0..12)
            .map(|index| host.group(&format!("limited-{index}")))
            .collect();
        let (jobs, main) = (host.group("jobs"), host.group("main"));
        let base = host.base_path();
        let text = rule(
            "limited",
            &of_cgroup(&format!("{base}/limited-*")),
            "quota = \"30ms/100ms\", burst = \"10ms\", weight = 50",
        ) + &rule(
            "short",
            &of_cgroup(&format!("{base}/short-*")),
            "quota = \"40ms/100ms\"",
        ) + &rule_of("jobs", &jobs, "class = \"batch\"")
            + &rule_of("main", &main, "headroom = \"30%\"");
        Self {
            limited,
            jobs,
            main,
            bystander: host.group("bystander"),
            text,
        }
    }

    /// Whether every cgroup that should be limited is.
    fn is_limited(&self) -> bool {
        let all = self.limited.iter().all(|group| quota_us(group) == 30_000);
        all && is_idle(&self.jobs) && quota_us(&self.jobs) > 0
    }

    fn wait_until_as_the_policy_says(&self) {
        for group in &self.limited {
            wait_for_quota(group, 30_000);
            assert_eq!(group.read_weight().unwrap(), 50);
        }
        wait_until("the batch group is limited", || self.is_limited());
        assert_eq!(quota_us(&self.main), -1);
        assert_eq!(quota_us(&self.bystander), -1);
        assert!(!is_idle(&self.bystander));
    }
}

/// Creates and removes matched cgroups until it is stopped, some before they can be limited.
fn come_and_go(host: &Host, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let group = host.base().child(format!("short-{}", number % 8));
        group.create().unwrap();
        let mut looks = Looks::begin();
        for _ in 0..number % 4 {
            looks.again();
        }
        remove_group(&group);
        number += 1;
    }
}

/// Looks again and again, from before the first kill until it is stopped, that limits stay.
/// Returns the number of looks.
fn watch_limits(scene: &Scene, stop: &AtomicBool) -> u64 {
    let mut nr_looks = 0;
    while !stop.load(Ordering::Relaxed) {
        assert!(
            scene.is_limited(),
            "look {nr_looks}: what was limited is not"
        );
        nr_looks += 1;
        Looks::begin().again();
    }
    nr_looks
}

#[test]
fn limits_hold_over_kills_at_any_moment_and_match_the_policy_after_the_restart() {
    let mut chance = chance("kill -9 under load");
    let mut host = Host::new();
    let scene = Scene::new(&mut host);
    let burner = host.start_load_in(&scene.jobs, "burn --threads 2 --duration 600s");
    let mut daemon = Daemon::start(&host, &scene.text);
    scene.wait_until_as_the_policy_says();
    let stop = AtomicBool::new(false);
    let looks = thread::scope(|scope| {
        let actor = scope.spawn(|| come_and_go(&host, &stop));
        let watcher = scope.spawn(|| watch_limits(&scene, &stop));
        let _stop = SetOnDrop(&stop);
        for kill in 0..KILLS {
            // Groups that come and go change its journal all the time.
            let mut changes = Changes::of(host.runtime());
            changes.wait_for(chance.below(40), || watcher.is_finished());
            daemon.kill_hard();
            if kill % 2 == 1 {
                // In the middle of a start.
                let mut changes = Changes::of(host.runtime());
                daemon.launch();
                changes.wait_for(chance.below(8), || watcher.is_finished());
                daemon.kill_hard();
            }
            daemon.restart();
            scene.wait_until_as_the_policy_says();
        }
        stop.store(true, Ordering::Relaxed);
        actor.join().unwrap();
        watcher.join().unwrap()
    });
    assert!(looks > KILLS, "{looks} looks at {KILLS} kills");
    wait_until("all others are forgotten", || {
        daemon.names().iter().all(|name| !name.contains("short"))
    });
    daemon.end();
    daemon.assert_as_before();
    drop(burner);
}
