//! Settings of cgroups that are no groups of Plimsoll hold in the kernel's scheduler, too.

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Running, max, wait_until};
use crate::daemon_rig::remove_group;
use crate::rig::Rig;
use crate::shared::with_command;

/// Used CPU time that is enough to tell a share from its half, however the CPU is taken away
/// meanwhile.
const ENOUGH_USEC: u64 = 2_000_000;

fn usage_usec(group: &CpuGroup) -> u64 {
    group.usage_usec().unwrap()
}

/// Waits until two groups have used so much together. Returns what each has.
fn used_by(one: &CpuGroup, other: &CpuGroup) -> [u64; 2] {
    let begin = [one, other].map(usage_usec);
    let used = || [usage_usec(one) - begin[0], usage_usec(other) - begin[1]];
    wait_until("they have run", || used().iter().sum::<u64>() > ENOUGH_USEC);
    used()
}

/// A group in another, and one beside that.
fn tree(rig: &Rig, name: &str) -> [CpuGroup; 3] {
    let outer = rig.group(name);
    outer.enable_children().unwrap();
    let inner = rig.group(&format!("{name}/inner"));
    let beside = rig.group(&format!("{name}-beside"));
    [outer, inner, beside]
}

#[test]
fn weights_of_all_levels_and_idle_hold_and_may_change() {
    let rig = with_command();
    let [outer, inner, beside] = tree(&rig, "weighed");
    let loads = [&inner, &beside].map(|group| rig.fair_burners(group, 1, 2));
    outer.write_weight(10_000).unwrap();
    let [heavy, light] = used_by(&outer, &beside);
    assert!(heavy > 10 * light, "100 : 1, but {heavy} : {light}");
    beside.write_weight(10_000).unwrap();
    outer.write_weight(100).unwrap();
    let [light, heavy] = used_by(&outer, &beside);
    assert!(heavy > 10 * light, "1 : 100, but {light} : {heavy}");
    // Before any weight.
    outer.write_weight(10_000).unwrap();
    outer.write_idle(true).unwrap();
    let [idle, normal] = used_by(&outer, &beside);
    assert!(normal > 10 * idle, "idle, but {idle} : {normal}");
    loads.into_iter().for_each(Running::kill_hard);
}

#[test]
fn cpu_max_holds_above_a_cgroup_with_tasks_and_may_change() {
    let rig = with_command();
    let [outer, inner, beside] = tree(&rig, "limited");
    outer.write_cpu_max(&max("10ms/100ms")).unwrap();
    let loads = [&inner, &beside].map(|group| rig.fair_burners(group, 1, 1));
    let [limited, free] = used_by(&outer, &beside);
    assert!(limited < free / 4, "10 %, but {limited} : {free}");
    outer.write_cpu_max(&max("max")).unwrap();
    let [one, other] = used_by(&outer, &beside);
    assert!(one > other / 2, "no limit, but {one} : {other}");
    // A limit of one of ours inside it holds, too.
    outer.write_cpu_max(&max("50ms/100ms")).unwrap();
    rig.set(&inner, "--quota 10ms/100ms");
    let [limited, free] = used_by(&outer, &beside);
    assert!(limited < free / 4, "10 %, but {limited} : {free}");
    rig.reset(&inner);
    loads.into_iter().for_each(Running::kill_hard);
}

/// The fair class keeps a quota at any depth.
#[test]
fn a_quota_holds_for_cgroups_however_deep_they_are() {
    let rig = with_command();
    let [outer, inner, beside] = tree(&rig, "deep");
    outer.write_cpu_max(&max("10ms/100ms")).unwrap();
    let mut all = vec![inner.clone()];
    for _ in 0..40 {
        let around = all.last().unwrap();
        around.enable_children().unwrap();
        let below = around.child("b");
        below.create().unwrap();
        // More than it can use.
        below.write_cpu_max(&max("200ms/100ms")).unwrap();
        all.push(below);
    }
    let loads = [all.last().unwrap(), &beside].map(|group| rig.fair_burners(group, 1, 1));
    let [limited, free] = used_by(&outer, &beside);
    assert!(free > 5 * limited, "a tenth, but {limited} : {free}");
    loads.into_iter().for_each(Running::kill_hard);
    all.iter().skip(1).rev().for_each(remove_group);
}

#[test]
fn tasks_at_their_cpu_limit_keep_no_others_from_a_cpu() {
    let rig = with_command();
    let crowd = rig.batch_burners("crowd", "--cpu-limit 10%", 1, 100);
    let other = rig.batch_burners("other", "", 1, 1);
    let [limited, free] = used_by(&rig.host.batch("crowd"), &rig.host.batch("other"));
    assert!(free > 4 * limited, "9 : 1, but {free} : {limited}");
    crowd.stop();
    other.stop();
}
