//! Members and slots: which tasks and cgroups the scheduler has, and what they have afterwards.

use plimsoll_engine::tasks;

use crate::common::task_ns;
use crate::daemon_rig::shown;
use crate::rig::burners;
use crate::shared::with_command;

/// The policy of tasks that other programs hand to a sched_ext scheduler
/// (include/uapi/linux/sched.h).
const SCHED_EXT: i32 = 7;

#[test]
fn tasks_are_scheduled_whatever_their_policy_and_keep_it() {
    let rig = with_command();
    let foreign = rig.group("foreign");
    let load = rig.fair_burners(&foreign, 1, 3);
    let tids = burners(&foreign);
    let policies = [libc::SCHED_BATCH, libc::SCHED_IDLE, SCHED_EXT];
    for (tid, policy) in tids.iter().zip(policies) {
        tasks::set_policy(*tid, policy).unwrap();
    }
    rig.set(&foreign, "--quota 20ms/100ms");
    rig.wait_until_runnable(&foreign, 3);
    rig.wait_until_all_run(&tids);
    // The SCHED_IDLE one has turns behind the others, which use up the quota.
    let batch = rig.statistics(&shown(&foreign)).batch;
    assert_eq!(batch.expect("it is scheduled").total.nr_overdue, 0);
    rig.reset(&foreign);
    for (tid, policy) in tids.iter().zip(policies) {
        assert_eq!(tasks::policy_number(*tid), Some(policy));
    }
    load.kill_hard();
}

/// The kernel stops a running task and starts it again when its policy changes.
#[test]
fn a_task_whose_policy_changes_all_the_time_leaves_others_their_share() {
    const ENOUGH_NS: u64 = 2_000_000_000;
    let rig = with_command();
    let foreign = rig.group("foreign");
    let load = rig.fair_burners(&foreign, 1, 2);
    let tids = burners(&foreign);
    let before = [tids[0], tids[1]].map(|tid| task_ns(tid).unwrap());
    let ran = || [0, 1].map(|index| task_ns(tids[index]).unwrap() - before[index]);
    while ran().iter().all(|ns| *ns < ENOUGH_NS) {
        for _ in 0..100 {
            tasks::set_policy(tids[0], libc::SCHED_BATCH).unwrap();
            tasks::set_policy(tids[0], libc::SCHED_OTHER).unwrap();
        }
    }
    let shares = ran();
    assert!(shares[1] > ENOUGH_NS / 10, "{shares:?}");
    load.kill_hard();
}
