//! Quotas in the kernel's scheduler.

use crate::common::wait_until;
use crate::daemon_rig::shown;
use crate::rig::Rig;
use crate::shared::with_command;

/// Checks three nested groups with quotas in milliseconds per 100 ms, the outermost first.
fn expect_narrowest(rig: &Rig, name: &str, quotas_ms: [u64; 3]) {
    let outer = rig.group(name);
    outer.enable_children().unwrap();
    let middle = rig.group(&format!("{name}/middle"));
    middle.enable_children().unwrap();
    let inner = rig.group(&format!("{name}/middle/inner"));
    let groups = [&outer, &middle, &inner];
    let mut around = None;
    for (group, quota_ms) in groups.iter().zip(quotas_ms) {
        rig.set(group, &format!("--quota {quota_ms}ms/100ms"));
        let in_force = rig.quota_in_force(&shown(group));
        assert_eq!(in_force, (1_000 * quota_ms, 100_000));
        let slot = rig.slot(group).unwrap();
        assert_eq!(slot["parent"].as_u64(), around, "{slot}");
        around = slot["slot"].as_u64();
    }
    let load = rig.fair_burners(&inner, 1, 1);
    let narrowest = quotas_ms.iter().min();
    for (group, quota_ms) in groups.iter().zip(&quotas_ms) {
        let name = shown(group);
        if Some(quota_ms) == narrowest {
            rig.wait_until_throttled(&name);
        } else {
            wait_until("two periods have ended", || {
                rig.quota(&name).nr_periods >= 2
            });
            assert_eq!(rig.quota(&name).nr_throttled, 0, "{name}");
        }
    }
    load.kill_hard();
    groups.iter().for_each(|group| rig.reset(group));
}

#[test]
fn of_quotas_three_levels_deep_only_the_narrowest_throttles() {
    let rig = with_command();
    expect_narrowest(&rig, "inwards", [80, 60, 10]);
    expect_narrowest(&rig, "outwards", [10, 60, 80]);
}
