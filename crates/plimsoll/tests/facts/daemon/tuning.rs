//! The tuning of the host.

use crate::common::Host;

#[test]
fn an_owner_that_has_only_a_part_of_the_machine_may_not_tune_it() {
    let host = Host::new();
    let run = "run --enforcer cgroup --class batch --host-tuning".split(' ');
    let refused = host.run(run.clone().chain(["--", "true"]));
    let line = refused.refusal();
    let expected = "host-tuning: cannot be `true` here: it takes root";
    assert!(
        line.contains(expected) && line.contains("--best-effort"),
        "{line}"
    );
    host.run(run.chain(["--best-effort", "--", "true"])).good();
}

/// These tests change how the whole machine preempts, and its bandwidth slice.
mod vm_only {
    use std::fs;

    use super::super::slice::FILE as SLICE;
    use crate::common::{Host, wait_until};
    use crate::rig::{Daemon, of_cgroup, rule, shown};

    const MODES: &str = "/sys/kernel/debug/sched/preempt";
    const OURS: &str = "full";
    const BEFORE: &str = "lazy";
    const SLICE_US: &str = "5000\n";

    /// Puts both settings back, also if the test fails.
    struct PutBack;

    impl Drop for PutBack {
        fn drop(&mut self) {
            let _ = fs::write(MODES, BEFORE);
            let _ = fs::write(SLICE, SLICE_US);
        }
    }

    fn is_tuned() -> bool {
        let modes = fs::read_to_string(MODES).unwrap();
        modes.contains(&format!("({OURS})")) && fs::read_to_string(SLICE).unwrap() == "2000\n"
    }

    fn is_as_before() -> bool {
        let modes = fs::read_to_string(MODES).unwrap();
        modes.contains(&format!("({BEFORE})")) && fs::read_to_string(SLICE).unwrap() == SLICE_US
    }

    #[test]
    fn the_host_is_tuned_while_a_group_asks_for_it_and_after_a_kill_until_the_next_start() {
        let _put_back = PutBack;
        let mut host = Host::new();
        let jobs = of_cgroup(&shown(&host.group("jobs")));
        let with = |knobs: &str| rule("jobs", &jobs, &format!("class = \"batch\"\n{knobs}"));
        let tuned = "bandwidth-slice = \"2ms\"\n".to_owned() + &with("host-tuning = true");
        // Without a base it owns the whole machine; its file matches one cgroup.
        let mut daemon = Daemon::ready(&host, "").wrapped(&["env", "PLIMSOLL_CGROUP_BASE="]);
        daemon.restart();
        assert!(is_as_before(), "nobody has asked");
        let reload = |daemon: &Daemon, text: &str| {
            daemon.write(text);
            daemon.send(nix::sys::signal::Signal::SIGHUP);
        };
        reload(&daemon, &tuned);
        wait_until("it is tuned", is_tuned);
        let settings = || daemon.state().daemon.host_tuning;
        wait_until("it says so", || settings() == Some(true));
        reload(&daemon, &with(""));
        wait_until("it is as before", is_as_before);
        assert_eq!(settings(), None);

        reload(&daemon, &tuned);
        wait_until("it is tuned again", is_tuned);
        daemon.kill_hard();
        assert!(is_tuned(), "it stays until the next start");
        daemon.restart();
        wait_until("the group that is adopted asks for it", is_tuned);
        daemon.kill_hard();
        daemon.write("");
        daemon.restart();
        assert!(is_as_before());
        // The next owner puts nothing back once more.
        fs::write(MODES, OURS).unwrap();
        daemon.kill_hard();
        daemon.restart();
        assert!(!is_as_before(), "it is somebody else's");
        fs::write(MODES, BEFORE).unwrap();

        reload(&daemon, &tuned);
        wait_until("it is tuned once more", is_tuned);
        daemon.stop();
        assert!(is_as_before());
    }
}
