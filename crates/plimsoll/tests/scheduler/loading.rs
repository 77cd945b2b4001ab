//! Loading on a busy machine.

use crate::common::nr_cpus;
use crate::rig::{all_cpus, rig};

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
