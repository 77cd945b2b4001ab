//! Quotas in the kernel's scheduler.

use crate::common::wait_until;
use crate::daemon_rig::shown;
use crate::shared::with_command;

#[test]
fn of_quotas_three_levels_deep_only_the_narrowest_throttles() {
    let rig = with_command();
    // In milliseconds per 100 ms, the outermost first.
    for (name, quotas_ms) in [("inwards", [80, 60, 10]), ("outwards", [10, 60, 80])] {
        let groups =
            ["", "/middle", "/middle/inner"].map(|below| rig.group(&(name.to_owned() + below)));
        let [outer, middle, inner] = &groups;
        outer.enable_children().unwrap();
        middle.enable_children().unwrap();
        for (group, quota_ms) in groups.iter().zip(quotas_ms) {
            rig.set(group, &format!("--quota {quota_ms}ms/100ms"));
        }
        let load = rig.fair_burners(inner, 1, 1);
        for (group, quota_ms) in groups.iter().zip(quotas_ms) {
            let name = shown(group);
            if quota_ms == 10 {
                rig.wait_until_throttled(&name);
                continue;
            }
            wait_until("two periods have ended", || {
                rig.quota(&name).nr_periods >= 2
            });
            assert_eq!(rig.quota(&name).nr_throttled, 0, "{name}");
        }
        load.kill_hard();
        groups.iter().for_each(|group| rig.reset(group));
    }
}
