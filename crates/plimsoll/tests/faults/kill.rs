//! `kill -9` at random moments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use plimsoll_cgroupfs::CpuGroup;

use super::random::Random;
use crate::common::{Host, native_or_vm, wait_until};
use crate::rig::{
    Daemon, SHORT, Sleeper, is_idle, is_in, of_cgroup, quota_us, remove_group, rule, shown,
    wait_for_quota, wait_until_in,
};

struct Scene {
    limited: Vec<CpuGroup>,
    jobs: CpuGroup,
    main: CpuGroup,
    bystander: CpuGroup,
    text: String,
}

impl Scene {
    fn new(host: &mut Host, executable: &str) -> Self {
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
        ) + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"")
            + &rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
            + &rule(
                "work",
                &format!("executable = \"{executable}\""),
                "class = \"batch\"",
            );
        Self {
            limited,
            jobs,
            main,
            bystander: host.group("bystander"),
            text,
        }
    }

    /// Every cgroup that should be limited is.
    fn is_limited(&self) -> bool {
        let all = self.limited.iter().all(|group| quota_us(group) == 30_000);
        all && is_idle(&self.jobs) && quota_us(&self.jobs) > 0
    }

    fn wait_until_as_the_policy_says(&self, daemon: &Daemon, pid: i32) {
        for group in &self.limited {
            wait_for_quota(daemon, group, 30_000);
            assert_eq!(group.read_weight().unwrap(), 50);
        }
        wait_until("the batch group is limited", SHORT, || self.is_limited());
        wait_until_in(daemon, pid, "work");
        assert_eq!(quota_us(&self.main), -1);
        assert_eq!(quota_us(&self.bystander), -1);
        assert!(!is_idle(&self.bystander));
    }
}

/// Creates and removes matched cgroups until it is stopped.
fn come_and_go(host: &Host, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let group = host.base().child(format!("short-{}", number % 8));
        group.create().unwrap();
        thread::sleep(crate::common::ms(number % 7));
        remove_group(&group);
        number += 1;
    }
}

/// Checks every other millisecond, from before the first kill until it is stopped, that limits
/// stay. Returns the number of checks.
fn watch_limits(scene: &Scene, stop: &AtomicBool) -> u64 {
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        assert!(scene.is_limited(), "look {looks}: what was limited is not");
        looks += 1;
        thread::sleep(crate::common::ms(2));
    }
    looks
}

#[test]
fn limits_hold_over_kills_at_any_moment_and_match_the_policy_after_the_restart() {
    let min_kills = native_or_vm(100, 8);
    let mut random = Random::of_this_run("kill -9 under load");
    let mut host = Host::shared();
    let sleeper = Sleeper::new(&format!("plimsoll-kill-{}", std::process::id()));
    let scene = Scene::new(&mut host, sleeper.path());
    let burner = host.start_load_in(&scene.jobs, "burn --threads 2 --duration 600s");
    let home = host.group("home");
    let member = host.start_in(&home, sleeper.words());
    let mut daemon = Daemon::start(&host, &scene.text);
    scene.wait_until_as_the_policy_says(&daemon, member.pid());
    let stop = AtomicBool::new(false);
    let mut kills = 0;
    let looks = thread::scope(|scope| {
        let actor = scope.spawn(|| come_and_go(&host, &stop));
        let watcher = scope.spawn(|| watch_limits(&scene, &stop));
        // Stops both even if the test fails.
        let _stop = SetOnDrop(&stop);
        while kills < min_kills {
            thread::sleep(random.ms(0..300));
            daemon.kill_hard();
            kills += 1;
            assert!(is_in(&host, member.pid(), "work"), "kill {kills}");
            // Sometimes during a start.
            while random.chance(50) {
                daemon.launch();
                thread::sleep(random.ms(0..60));
                daemon.kill_hard();
                kills += 1;
            }
            daemon.restart();
            scene.wait_until_as_the_policy_says(&daemon, member.pid());
        }
        stop.store(true, Ordering::Relaxed);
        actor.join().unwrap();
        watcher.join().unwrap()
    });
    assert!(looks > kills, "{looks} looks at {kills} kills");
    println!("{kills} kills, {looks} looks");
    let at_the_end = random.chance(50);
    if at_the_end {
        println!("at the end: plimsoll restore");
        daemon.kill_hard();
        host.run(["restore"]).good();
    } else {
        println!("at the end: an ordinary stop");
        daemon.end();
    }
    daemon.assert_as_before();
    assert!(home.processes().unwrap().contains(&member.pid()));
    drop((burner, member));
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn restore_after_a_kill_undoes_everything_and_the_next_daemon_starts_fresh() {
    let mut host = Host::shared();
    let sleeper = Sleeper::new(&format!("plimsoll-rest-{}", std::process::id()));
    let scene = Scene::new(&mut host, sleeper.path());
    let home = host.group("home");
    let member = host.start_in(&home, sleeper.words());
    let mut daemon = Daemon::start(&host, &scene.text);
    for _ in 0..3 {
        scene.wait_until_as_the_policy_says(&daemon, member.pid());
        daemon.kill_hard();
        host.run(["restore"]).good();
        daemon.assert_as_before();
        daemon.restart();
    }
    daemon.stop();
}

#[test]
fn restore_leaves_a_living_daemon_alone() {
    let mut host = Host::shared();
    let sleeper = Sleeper::new(&format!("plimsoll-alive-{}", std::process::id()));
    let scene = Scene::new(&mut host, sleeper.path());
    let home = host.group("home");
    let member = host.start_in(&home, sleeper.words());
    let daemon = Daemon::start(&host, &scene.text);
    scene.wait_until_as_the_policy_says(&daemon, member.pid());
    host.run(["restore"]).good();
    scene.wait_until_as_the_policy_says(&daemon, member.pid());
    daemon.stop();
}
