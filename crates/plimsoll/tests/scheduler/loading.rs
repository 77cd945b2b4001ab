//! Loading on a busy machine, and in place of another build's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::nr_cpus;
use crate::rig::{all_cpus, burners, rig};

#[test]
fn a_command_has_the_scheduler_although_more_tasks_run_than_there_are_cpus() {
    let rig = rig();
    let fair = rig.group("fair");
    let rivals = rig.fair_burners(&fair, all_cpus(), 4 * nr_cpus());
    let work = rig.batch("work", "", &["cat", "/sys/kernel/sched_ext/state"]);
    let finished = work.finish().good();
    assert_eq!(finished.stdout, "enabled\n");
    rivals.kill_hard();
}

/// The kernel verifies the new one for seconds. A spinner on another CPU shows how long it takes.
#[test]
fn limits_hold_until_a_scheduler_of_another_build_is_replaced() {
    assert!(nr_cpus() >= 2, "this takes two CPUs");
    let rig = rig();
    let spinner = rig.group("spinner");
    // A quota would hold by the file.
    let work = rig.batch_burners("work", "--cap 20%", 0b1, 1);
    let running = rig.fair_burners(&spinner, 0b10, 1);
    let group = rig.host.batch("work");
    rig.wait_until_all_run(&burners(&group));
    let before = rig.groups_id();
    rig.host.kill_owner();
    let build = Path::new("/sys/fs/bpf/plimsoll/build");
    fs::remove_file(build).unwrap();
    symlink("another", build).unwrap();
    let used_ns = || [&group, &spinner].map(|group| group.usage_ns().unwrap());
    let begin_ns = used_ns();
    rig.batch_sleeper("next").stop();
    assert_ne!(rig.groups_id(), before);
    let end_ns = used_ns();
    let [limited_ns, all_ns] = [0, 1].map(|index| end_ns[index] - begin_ns[index]);
    assert!(limited_ns < all_ns / 2, "{limited_ns} of {all_ns}");
    running.kill_hard();
    work.stop();
}
