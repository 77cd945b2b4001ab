//! Server slices of a group that is throttled.

use crate::clock::{ms, rate_of, sleep_ms};
use crate::common::nr_cpus;
use crate::figure::SPEC_2;
use crate::scheduler_rig::{all_cpus, rig};

#[test]
fn throttled_group_behind_saturating_work() {
    let rig = rig();
    let fair = rig.group("fair");
    let work = rig.batch_burners("work", "", all_cpus(), nr_cpus());
    // Less than the tolerance, so that it is throttled repeatedly.
    let set = |quota: &str| rig.host.run(["set", "work", "--quota", quota]).good();
    set("1ms/500ms");
    let rival = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    // First it pays a debt: what its tasks overran as the quota was set, a period's worth or so.
    sleep_ms(5_000);
    let rate = rate_of(&rig.host.batch("work"), ms(5_000));
    // A slice may exceed the quota a little, which is a debt.
    let what = "quota of 1 ms per 500 ms behind fair work";
    SPEC_2.figure(what, rate, "% of a CPU", 0.19..=0.22);
    rival.kill_hard();
    set("max/500ms");
    work.stop();
}
