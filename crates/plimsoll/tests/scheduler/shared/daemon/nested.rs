//! Nested groups of the daemon, which start and end separately.

use plimsoll_cgroupfs::CpuGroup;

use super::finish;
use crate::daemon::with_class;
use crate::daemon_rig::{rule_of, shown};
use crate::shared::with_daemon;

#[test]
fn nested_cgroup_belongs_to_a_later_parent_but_not_to_its_successor() {
    let rig = with_daemon();
    let outer = rig.group("outer");
    outer.enable_children().unwrap();
    let (inner, other) = (rig.group("outer/inner"), rig.group("other"));
    let loads = [
        rig.fair_burners(&inner, 1, 1),
        rig.fair_burners(&other, 2, 1),
    ];
    let of = |group: &CpuGroup, percent: u32| {
        let knobs = with_class(&format!("quota = \"{percent}ms/100ms\""));
        rule_of(&format!("of-{percent}"), group, &knobs)
    };
    let slot_of = |group: &CpuGroup| rig.slot(group).unwrap()["slot"].as_u64();
    let parent_of = |group: &CpuGroup| rig.slot(group).unwrap()["parent"].as_u64();
    rig.reload(&of(&inner, 20));
    rig.wait_until_scheduled(&inner);
    assert_eq!(parent_of(&inner), None);
    rig.assert_quota(&shown(&inner), 20_000, 100_000);
    rig.reload(&(of(&inner, 20) + &of(&outer, 10)));
    assert_eq!(parent_of(&inner), slot_of(&outer));
    rig.assert_quota(&shown(&outer), 10_000, 100_000);
    // The other cgroup takes the place of the group that has ended.
    rig.reload(&of(&inner, 20));
    assert!(rig.is_scheduled(&inner), "no gap is left");
    rig.reload(&(of(&inner, 20) + &of(&other, 15)));
    rig.wait_until_scheduled(&other);
    assert_eq!(parent_of(&inner), None);
    rig.assert_quota(&shown(&inner), 20_000, 100_000);
    rig.assert_quota(&shown(&other), 15_000, 100_000);
    assert_eq!(rig.nr_slots(), 2);
    rig.reload("");
    loads.into_iter().for_each(|load| load.kill_hard());
    finish(&rig);
}
