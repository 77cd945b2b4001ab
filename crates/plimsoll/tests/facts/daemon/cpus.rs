//! CPUs that go offline while the daemon runs.

/// Tests for guests only: no CPU of somebody's machine is taken offline.
mod vm_only {
    use crate::common::{Host, Offline, nr_cpus, wait_until};
    use crate::daemon::lifecycle::metrics;
    use crate::rig::{Daemon, quota_us, rule_of};

    /// Number of CPUs in the daemon's state, in its metrics and in `top`.
    fn told(daemon: &Daemon) -> [u64; 3] {
        let metrics = metrics(daemon);
        let mut lines = metrics.lines();
        let of_metrics = lines.find_map(|line| line.strip_prefix("plimsoll_machine_cpus "));
        let top = daemon.host.run(["top", "--once", "--json"]).good().json();
        [
            u64::from(daemon.state().machine.nr_cpus),
            of_metrics.unwrap().parse().unwrap(),
            top["machine"]["nr_cpus"].as_u64().unwrap(),
        ]
    }

    #[test]
    fn offline_cpu_is_counted_nowhere_and_keeps_no_batch_work_out() {
        let all = nr_cpus() as u64;
        assert!(all >= 2, "this takes two CPUs");
        let mut host = Host::new();
        let (jobs, main) = (host.group("jobs"), host.group("main"));
        let text = "[metrics]\nlisten = \"127.0.0.1:0\"\n".to_owned()
            + &rule_of("jobs", &jobs, "class = \"batch\"")
            + &rule_of("main", &main, &format!("headroom = \"{all}cpus\""));
        let daemon = Daemon::start(&host, &text);
        daemon.wait_for_log("metrics at http://");
        assert_eq!(told(&daemon), [all; 3]);
        let offline = Offline::take(1);
        wait_until("all have one less", || told(&daemon) == [all - 1; 3]);
        // More is demanded than there is: then it is all that there is.
        let updates = || daemon.state().headroom.unwrap().nr_updates;
        let before = updates();
        wait_until("the controller goes on", || updates() > before);
        assert!(quota_us(&jobs) > 0, "{}", daemon.log());
        let state = daemon.state();
        let mut groups = state.groups.iter();
        assert!(groups.all(|group| group.problem.is_none()), "{state:?}");
        host.run(["run", "--class", "batch", "--", "true"]).good();
        drop(offline);
        wait_until("it is back", || told(&daemon) == [all; 3]);
        daemon.stop();
    }
}
