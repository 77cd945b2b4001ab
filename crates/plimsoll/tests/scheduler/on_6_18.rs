//! Tests that the oldest supported kernel with sched_ext, 6.18, has to pass as well.

use crate::common::nr_cpus;
use crate::rig::{all_cpus, burners, rig};

#[test]
fn commands_that_end_at_the_same_time_leave_nothing_each_time() {
    let rig = rig();
    for _ in 0..2 {
        let first = rig.batch_sleeper("first");
        let second = rig.batch_burners("second", "--quota 20ms/100ms", 1, 1);
        rig.assert_quota("second", 20_000, 100_000);
        rig.assert_never_ejected();
        for command in [&first, &second] {
            command.send(nix::sys::signal::Signal::SIGTERM);
        }
        for command in [first, second] {
            command.finish();
        }
        rig.assert_nothing_left();
    }
}

#[test]
fn the_next_owner_runs_tasks_behind_normal_work_that_never_sleeps() {
    let rig = rig();
    let fair = rig.group("fair");
    let work = rig.batch_burners("work", "", all_cpus(), nr_cpus());
    rig.host.kill_owner();
    rig.batch_sleeper("other").stop();
    let tids = burners(&rig.host.batch("work"));
    let rivals = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    rig.wait_until_all_run(&tids);
    rig.assert_never_ejected();
    rivals.kill_hard();
    work.stop();
    rig.assert_nothing_left();
}
