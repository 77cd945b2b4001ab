//! The bandwidth slice of the machine.

use std::fs;

use crate::common::Host;
use crate::rig::Daemon;

pub const FILE: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";

#[test]
fn a_daemon_that_has_only_a_part_of_the_machine_may_not_set_it() {
    let host = Host::new();
    let before = fs::read_to_string(FILE).unwrap();
    let text = "bandwidth-slice = \"2ms\"";
    let daemon = Daemon::start(&host, text);
    let problems = daemon.state().daemon.problems;
    let expected = "bandwidth-slice: cannot be `2ms` here: it holds for the whole machine";
    assert!(problems[0].starts_with(expected), "{problems:?}");
    daemon.write("");
    daemon.reload().good();
    assert_eq!(daemon.state().daemon.problems, [""; 0]);
    daemon.write(text);
    let refused = daemon.reload();
    assert!(
        refused.refusal().contains(expected),
        "{}",
        refused.one_line()
    );
    assert_eq!(fs::read_to_string(FILE).unwrap(), before);
    daemon.stop();
}
