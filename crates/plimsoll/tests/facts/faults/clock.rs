//! Jumps of the wall clock.

/// Tests for guests only: the wall clock of somebody's machine is not set.
mod vm_only {
    use std::process::Command;

    use crate::common::{Host, in_vm, wait_until};
    use crate::rig::{
        Daemon, is_idle, of_cgroup, quota_us, remove_group, rule, rule_of, wait_for_quota,
    };

    fn wall_clock(words: &[&str]) -> String {
        let output = Command::new("date").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn jump_of_the_wall_clock_has_no_effect() {
        assert!(in_vm(), "it would set this machine's clock");
        let mut host = Host::new();
        let (jobs, main) = (host.group("jobs"), host.group("main"));
        let later = of_cgroup(&format!("{}/g-*", host.base_path()));
        let text = rule_of("jobs", &jobs, "class = \"batch\"")
            + &rule_of("main", &main, "headroom = \"50%\"")
            + &rule("g", &later, "quota = \"30ms/100ms\"");
        let burner = host.start_load_in(&jobs, "burn --threads 4 --duration 600s");
        let daemon = Daemon::start(&host, &text);
        let now: i64 = wall_clock(&["+%s"]).parse().unwrap();
        for jump in [0, 3_600, -3_600, 400 * 86_400, -400 * 86_400] {
            wall_clock(&["-s", &format!("@{}", now + jump)]);
            // A new group is limited, and the controller goes on.
            let group = host.base().child("g-new");
            group.create().unwrap();
            wait_for_quota(&group, 30_000);
            remove_group(&group);
            let updates = || daemon.state().headroom.unwrap().nr_updates;
            let before = updates();
            wait_until("the controller goes on", || updates() > before + 3);
            assert!(is_idle(&jobs) && quota_us(&jobs) > 0);
        }
        wall_clock(&["-s", &format!("@{now}")]);
        daemon.stop();
        burner.kill_hard();
    }
}
