//! Stops of the daemon, and jumps of the wall clock.

use std::process::Command;

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, in_vm, wait_until};
use crate::rig::{Daemon, is_idle, of_cgroup, quota_us, remove_group, rule, shown, wait_for_quota};

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

    /// Checks that the daemon limits a new group, and that the controller goes on.
    fn assert_it_works(&self, daemon: &Daemon) {
        let group = daemon.host.base().child("g-new");
        group.create().unwrap();
        wait_for_quota(&group, 30_000);
        remove_group(&group);
        let updates = || daemon.state().headroom.unwrap().nr_updates;
        let before = updates();
        wait_until("the controller goes on", || updates() > before + 3);
        assert!(is_idle(&self.jobs) && quota_us(&self.jobs) > 0);
    }
}

/// Tests for guests only: the wall clock of somebody's machine is not set.
mod vm_only {
    use super::*;

    fn wall_clock(words: &[&str]) -> String {
        let output = Command::new("date").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn jump_of_the_wall_clock_has_no_effect() {
        assert!(in_vm(), "it would set this machine's clock");
        let mut host = Host::new();
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
}
