//! Stops of the daemon, and jumps of the wall clock.

use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, in_vm, nr_cpus, rate_percent, wait_until};
use crate::rig::{
    Daemon, SHORT, is_idle, of_cgroup, quota_us, remove_group, rule, shown, wait_for_quota,
};

struct Scene {
    jobs: CpuGroup,
    text: String,
}

impl Scene {
    fn new(host: &mut Host) -> Self {
        let (jobs, main) = (host.group("jobs"), host.group("main"));
        let base = host.base_path();
        let text = rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"")
            + &rule("main", &of_cgroup(&shown(&main)), "headroom = \"50%\"")
            + &rule(
                "g",
                &of_cgroup(&format!("{base}/g-*")),
                "quota = \"30ms/100ms\"",
            );
        Self { jobs, text }
    }

    /// Checks that the daemon works, and that batch work leaves the headroom.
    fn assert_it_works(&self, daemon: &Daemon) {
        let group = daemon.host.base().child("g-new");
        group.create().unwrap();
        wait_for_quota(daemon, &group, 30_000);
        remove_group(&group);
        let updates = || daemon.state().headroom.unwrap().nr_updates;
        let before = updates();
        wait_until("the controller goes on", SHORT, || updates() > before + 3);
        assert!(is_idle(&self.jobs) && quota_us(&self.jobs) > 0);
        assert_is_limited(&self.jobs, Duration::from_millis(1_000));
    }
}

/// What others on this machine use is taken off what batch work may use: so it never uses more
/// than the headroom of 50 % leaves of the machine, and what a CPU holds when the time begins.
fn assert_is_limited(jobs: &CpuGroup, time: Duration) {
    let most = 50.0 * nr_cpus() as f64 + 10.0;
    let rate = rate_percent(jobs, time);
    println!("batch work beside a headroom of 50 %: {rate:.1} %, at most {most:.1}");
    assert!(rate <= most, "{rate:.1} %");
}

#[test]
fn daemon_works_after_a_stop_of_seconds() {
    let mut host = Host::shared();
    let scene = Scene::new(&mut host);
    let burner = host.start_load_in(&scene.jobs, "burn --threads 4 --duration 600s");
    let daemon = Daemon::start(&host, &scene.text);
    scene.assert_it_works(&daemon);
    for time in [300, 2_000, 5_000] {
        daemon.send(Signal::SIGSTOP);
        thread::sleep(Duration::from_millis(200));
        // Without control, batch work stays limited: it has at most its last share.
        assert!(is_idle(&scene.jobs) && quota_us(&scene.jobs) > 0);
        assert_is_limited(&scene.jobs, Duration::from_millis(time));
        daemon.send(Signal::SIGCONT);
        scene.assert_it_works(&daemon);
    }
    daemon.stop();
    burner.kill_hard();
}

fn wall_clock(words: &[&str]) -> String {
    let output = Command::new("date").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn jump_of_the_wall_clock_has_no_effect() {
    if !in_vm() {
        println!("ONLY IN THE VM: the clock on the wall is not set on somebody's machine");
        return;
    }
    let mut host = Host::shared();
    let scene = Scene::new(&mut host);
    let burner = host.start_load_in(&scene.jobs, "burn --threads 4 --duration 600s");
    let daemon = Daemon::start(&host, &scene.text);
    scene.assert_it_works(&daemon);
    let now: i64 = wall_clock(&["+%s"]).parse().unwrap();
    for jump in [3_600, -3_600, 400 * 86_400, -400 * 86_400] {
        wall_clock(&["-s", &format!("@{}", now + jump)]);
        scene.assert_it_works(&daemon);
    }
    wall_clock(&["-s", &format!("@{now}")]);
    daemon.stop();
    burner.kill_hard();
}
