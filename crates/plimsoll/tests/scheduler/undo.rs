//! Complete removal of a scheduler whose owner was killed.

use plimsoll_engine::tasks;

use crate::common::{is_alive, tasks_below};
use crate::daemon_rig::kill_all;
use crate::rig::{rig, state};

#[test]
fn groups_of_a_killed_owner_stay_scheduled_until_restore_undoes_everything() {
    let rig = rig();
    let idle = rig.group("idle");
    let sleeper = rig.host.start_in(&idle, ["sleep", "100000"]);
    tasks::set_policy(sleeper.pid(), libc::SCHED_IDLE).unwrap();
    rig.set(&idle, "");
    let work = rig.batch_burners("work", "--quota 20ms/100ms --tolerance 5ms/100ms", 1, 2);
    let group = rig.host.batch("work");
    let tids = [tasks_below(&group), vec![sleeper.pid()]].concat();
    assert!(rig.is_scheduled(&idle) && rig.is_scheduled(&group));
    rig.host.kill_owner();
    // Its clients need not live either.
    work.kill_hard();
    assert_eq!(state(), "enabled");
    assert!(group.parent().unwrap().read_idle().unwrap());
    rig.host.run(["restore"]).good();
    assert!(tids.iter().all(|tid| is_alive(*tid)));
    let policy = tasks::policy_number(sleeper.pid());
    assert_eq!(policy, Some(libc::SCHED_IDLE), "it keeps its policy");
    assert_eq!(state(), "disabled");
    sleeper.kill_hard();
    let left: Vec<i32> = tids.into_iter().filter(|tid| is_alive(*tid)).collect();
    kill_all(&left);
}
