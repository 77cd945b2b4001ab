//! The kernel's ext servers, which it stops when they have no task.

use std::time::Duration;

use crate::common::{known_defect, nr_cpus};
use crate::rig::{all_cpus, has_ext_server, is_within, rates_of, rig};

#[test]
fn group_throttled_behind_saturating_work_runs_in_its_next_periods() {
    let mut rig = rig();
    let fair = rig.host.group("fair");
    let work = rig.batch_burners("work", "", all_cpus(), nr_cpus());
    let batch = rig.host.batch("work");
    // Less than the tolerance, so that it is throttled repeatedly, and the kernel finds no task
    // each time.
    let set = |quota: &str| rig.host.run(["set", "work", "--quota", quota]).good();
    set("1ms/500ms");
    let rival = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    let shares = rates_of(&[&batch, &fair], Duration::from_secs(5));
    println!("batch {:.3} %, fair {:.1} %", shares[0], shares[1]);
    // A slice may exceed the quota a little, which is a debt.
    let what = "quota behind fair work, percent of one CPU";
    let holds = is_within(what, shares[0], 0.19..=0.22);
    known_defect(
        if has_ext_server() {
            "issue 17: a stopped ext server is started again late: 0 to 0.18 % in seven builds"
        } else {
            "issue 17: without an ext server a throttled group starves behind fair work"
        },
        holds,
    );
    rival.kill_hard();
    rig.assert_never_ejected("work");
    set("max/500ms");
    work.stop();
    rig.assert_nothing_left();
}
