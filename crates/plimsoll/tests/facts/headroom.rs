//! Headroom by quotas: control, foreign cgroups and undo. The lab measures the shares.

use crate::common::{Host, Running, nr_cpus, tasks_below, wait_until};
use crate::foreign::policy;
use crate::rig::shown;
use plimsoll_cgroupfs::{CpuGroup, CpuMax, os};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::knobs::{Bandwidth, Demand};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::runtime::RuntimeFolder;

fn start_side(host: &Host, name: &str, knobs: &str) -> Running {
    let threads = nr_cpus();
    let running = host.start_load(
        &format!("--name {name} --class batch --headroom 30% {knobs}"),
        &format!("burn --threads {threads} --duration 600s"),
    );
    let group = host.batch(name);
    // On a busy machine it has but its tolerance to start with.
    wait_until("batch work runs", || tasks_below(&group).len() > threads);
    running
}

/// The groups that share the allowance, as one of them reports.
fn sides(host: &Host, name: &str) -> Vec<String> {
    let state = host.show(name);
    let sides = &state["statistics"]["headroom"]["sides"];
    let names = sides.as_array().into_iter().flatten();
    names
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect()
}

/// Waits for the next update of a group's headroom controller.
fn wait_until_controlled(host: &Host, name: &str) {
    let updates = || {
        let state = host.show(name);
        state["statistics"]["headroom"]["nr_updates"].as_u64()
    };
    let before = updates();
    wait_until("it is controlled", || {
        updates().is_some_and(|now| Some(now) > before)
    });
}

/// The policy of a machine with a headroom.
pub fn with_headroom(text: &str) -> MachinePolicy {
    let mut demand = Demand::default();
    demand.add(Some(text.parse().unwrap()), None);
    MachinePolicy {
        demand,
        bandwidth_slice: None,
    }
}

/// Holds cgroups, which then have quotas of the controller, and withdraws one after the other: each
/// gets the quota that it had before, and keeps it whatever the controller does. `controls` lets
/// the controller run.
fn hold_and_withdraw(
    host: &Host,
    groups: &[CpuGroup],
    mut controls: impl FnMut(&mut CgroupEnforcer),
) {
    let quotas = |groups: &[CpuGroup]| -> Vec<CpuMax> {
        let quotas = groups.iter().map(|group| group.read_cpu_max().unwrap());
        quotas.collect()
    };
    let before = quotas(groups);
    // Another owner may run, whose journal stays.
    let runtime = RuntimeFolder::at(host.runtime());
    let (mut enforcer, _) = CgroupEnforcer::start(host.hierarchy(), &runtime).unwrap();
    enforcer.set_machine(&with_headroom("30%")).unwrap();
    for group in groups {
        let policy = policy(group, r#"{"class": "batch"}"#);
        enforcer.put(&policy).unwrap();
    }
    wait_until("each has a quota of the controller's", || {
        controls(&mut enforcer);
        let now = quotas(groups);
        now.iter().zip(&before).all(|(now, before)| now != before)
    });
    for (index, group) in groups.iter().enumerate() {
        enforcer.remove(&shown(group)).unwrap();
        for _ in 0..3 {
            assert_eq!(quotas(&groups[..=index]), before[..=index]);
            controls(&mut enforcer);
        }
    }
    assert_eq!(enforcer.undo().problems, [""; 0]);
}

#[test]
fn quota_of_a_withdrawn_batch_group_is_restored() {
    let mut host = Host::new();
    let groups = ["free", "limited"].map(|name| host.group(name));
    let half = Bandwidth::of("50ms/100ms".parse().unwrap(), None);
    groups[1].write_cpu_max(&half.into()).unwrap();
    let load = "burn --threads 1 --duration 600s";
    let loads = groups.each_ref().map(|g| host.start_load_in(g, load));
    let tick = |enforcer: &mut CgroupEnforcer| {
        enforcer.tick(os::now()).unwrap();
    };
    hold_and_withdraw(&host, &groups, tick);
    let other = start_side(&host, "other", "");
    wait_until("the other controls", || sides(&host, "other") == ["other"]);
    hold_and_withdraw(&host, &groups, |enforcer| {
        tick(enforcer);
        wait_until_controlled(&host, "other");
    });
    wait_until("it has only its own", || sides(&host, "other") == ["other"]);
    other.stop();
    loads.into_iter().for_each(|load| drop(load.stop()));
}
