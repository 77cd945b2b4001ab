//! `kill -9`, again and again, at any moment.

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

    /// Nothing that should be limited is not.
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

/// Creates and removes cgroups that a rule claims until it is told to stop.
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

#[test]
fn killed_at_any_moment_every_knob_is_as_the_policy_says_after_the_restart() {
    let rounds = native_or_vm(25, 5);
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
    thread::scope(|scope| {
        let actor = scope.spawn(|| come_and_go(&host, &stop));
        // Stops the actor also when something fails.
        let _stop = SetOnDrop(&stop);
        for round in 0..rounds {
            thread::sleep(random.ms(0..300));
            daemon.kill_hard();
            assert!(scene.is_limited(), "round {round}: what was limited is not");
            assert!(is_in(&host, member.pid(), "work"), "round {round}");
            // Sometimes in the middle of a start.
            while random.chance(50) {
                daemon.launch();
                thread::sleep(random.ms(0..60));
                daemon.kill_hard();
            }
            daemon.restart();
            scene.wait_until_as_the_policy_says(&daemon, member.pid());
        }
        stop.store(true, Ordering::Relaxed);
        actor.join().unwrap();
    });
    println!("{rounds} rounds");
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
fn after_a_kill_restore_puts_everything_back_and_the_next_daemon_begins_anew() {
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
fn restore_leaves_a_daemon_that_lives_alone() {
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
