//! The kernel's ext servers, which it stops when there is nothing for them.

use std::time::Duration;

use crate::common::nr_cpus;
use crate::rig::{all_cpus, expect_within, has_ext_server, rates_of, rig};

#[test]
fn a_group_that_was_throttled_behind_saturating_work_runs_in_its_next_periods_too() {
    let Some(mut rig) = rig() else { return };
    let fair = rig.host.group("fair");
    if !has_ext_server() {
        eprintln!("SKIPPED: this kernel has no ext server");
        return;
    }
    let work = rig.batch_burners("work", "", all_cpus(), nr_cpus());
    let batch = rig.host.batch("work");
    // Less than the tolerance, so that it is throttled again and again; and each time the kernel
    // finds nothing to run.
    let set = |quota: &str| rig.host.run(["set", "work", "--quota", quota]).good();
    set("1ms/500ms");
    let rival = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    // A turn may go over the quota by a bit, which is a debt; and of each period some time goes
    // by until a server is started again.
    expect_within(
        "quota behind fair work, percent of one CPU",
        0.14,
        0.08,
        || {
            let shares = rates_of(&[&batch, &fair], Duration::from_secs(10));
            println!("batch {:.3} %, fair {:.1} %", shares[0], shares[1]);
            shares[0]
        },
    );
    rival.kill_hard();
    rig.assert_never_ejected("work");
    set("max/500ms");
    work.stop();
    rig.assert_nothing_left();
}
