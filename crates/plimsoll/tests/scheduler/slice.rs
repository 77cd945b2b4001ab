//! The bandwidth slice of the machine, in the scheduler and in the kernel's file.

use std::path::Path;

use crate::common::{text, wait_until};
use crate::daemon_rig::{Daemon, rule_of};
use crate::rig::rig;

const FILE: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";

#[test]
fn slice_of_the_file_applies_to_every_group_until_it_is_removed() {
    let rig = rig();
    let before = text(Path::new(FILE));
    let job = rig.group("job-1");
    let burners = rig.fair_burners(&job, 1, 1);
    let jobs = rule_of("jobs", &job, "class = \"batch\"\nquota = \"50ms/100ms\"");
    let with_slice = |slice: &str| format!("bandwidth-slice = \"{slice}\"\n{jobs}");
    // The guest belongs to this test, so its daemon may own the whole machine.
    let wrapper = ["env", "PLIMSOLL_CGROUP_BASE="];
    let mut daemon = Daemon::ready(rig.host, &with_slice("2ms")).wrapped(&wrapper);
    daemon.restart();
    let slice_usec = || {
        let debug = rig.debug();
        let groups = debug["groups"].as_array().unwrap();
        groups.iter().find_map(|group| group["slice_usec"].as_u64())
    };
    wait_until("a new group has it", || slice_usec() == Some(2_000));
    assert_eq!(text(Path::new(FILE)), "2000");
    daemon.write(&with_slice("4ms"));
    daemon.reload().good();
    assert_eq!(slice_usec(), Some(4_000));
    daemon.write(&jobs);
    daemon.reload().good();
    assert_eq!(slice_usec(), Some(5_000));
    assert_eq!(text(Path::new(FILE)), before);
    daemon.stop();
    burners.kill_hard();
}
