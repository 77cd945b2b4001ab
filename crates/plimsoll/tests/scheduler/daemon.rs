//! The daemon that loads the BPF scheduler, and loads it again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::enforcer::EnforcerKind;

use crate::common::wait_until;
use crate::daemon_rig::{Daemon, is_idle, of_cgroup, quota_us, rule, shown};
use crate::rig::{EagerHugePages, Rig, cgroup_id, rig, state};

/// A group of the file for one cgroup.
fn file_group(name: &str, group: &CpuGroup, knobs: &str) -> String {
    rule(name, &of_cgroup(&shown(group)), knobs)
}

/// A batch group of the file for all cgroups of the base that are called so.
pub fn jobs(rig: &Rig, knobs: &str) -> String {
    let pattern = format!("{}/job-*", rig.host.base_path());
    rule("jobs", &of_cgroup(&pattern), &with_class(knobs))
}

pub fn with_class(knobs: &str) -> String {
    let comma = if knobs.is_empty() { "" } else { ", " };
    format!("class = \"batch\"{comma}{knobs}")
}

/// Runs `act`, during which a condition holds at every look.
fn always_while(holds: impl Fn() -> bool + Sync, act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // At least one look.
            loop {
                assert!(holds(), "nothing holds the quota");
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let acted = catch_unwind(AssertUnwindSafe(act));
        is_over.store(true, Ordering::Relaxed);
        acted.unwrap_or_else(|panicked| resume_unwind(panicked));
    });
}

const QUOTA: &str = "quota = \"30ms/100ms\"";

#[test]
fn a_reload_goes_to_the_stock_kernel_and_back() {
    let rig = rig();
    let job = rig.group("job-1");
    let load = rig.fair_burners(&job, 1, 1);
    let text_of = |enforcer: &str| format!("enforcer = \"{enforcer}\"\n{}", jobs(&rig, QUOTA));
    let daemon = Daemon::start(rig.host, &text_of("sched-ext"));
    rig.wait_until_scheduled(&job);
    assert_eq!(quota_us(&job), -1);
    let words = "run --class batch --quota 20ms/100ms --name sleeper -- sleep 100000";
    let command = rig.host.start(words.split(' '));
    let own = rig.host.batch("sleeper");
    wait_until("it is there", || own.is_populated().unwrap_or(false));
    let own_before = (cgroup_id(&own), own.processes().unwrap());
    // In this order: a quota that is set after the look at the scheduler came too late.
    let have_quotas = || [&job, &own].iter().all(|group| quota_us(group) != -1);
    let are_limited = || state() == "enabled" || have_quotas();
    always_while(are_limited, || daemon.reload_with(&text_of("cgroup")));
    // Made anew, it would not have been limited in between.
    assert_eq!((cgroup_id(&own), own.processes().unwrap()), own_before);
    assert_eq!(daemon.state().daemon.enforcer, EnforcerKind::Cgroup);
    assert!(is_idle(&job));
    assert_eq!([&job, &own].map(quota_us), [30_000, 20_000]);
    wait_until("it is unloaded", || state() == "disabled");
    let has_slot = |group| {
        rig.slot(group)
            .is_some_and(|slot| !slot["pool_usec"].is_null())
    };
    let is_limited = |group| quota_us(group) != -1 || has_slot(group);
    let are_limited = || is_limited(&job) && is_limited(&own);
    always_while(are_limited, || daemon.reload_with(&text_of("sched-ext")));
    assert_eq!(daemon.state().daemon.enforcer, EnforcerKind::SchedExt);
    assert_eq!((cgroup_id(&own), own.processes().unwrap()), own_before);
    rig.wait_until_scheduled(&job);
    assert_eq!(rig.quota_in_force("sleeper"), (20_000, 100_000));
    command.stop();
    assert_eq!(quota_us(&job), -1);
    rig.assert_quota(&shown(&job), 30_000, 100_000);
    daemon.stop();
    assert_eq!(state(), "disabled");
    assert!(!is_idle(&job));
    load.kill_hard();
    rig.assert_nothing_left();
}

#[test]
fn normal_groups_are_scheduled_until_they_end() {
    let rig = rig();
    let _eager = EagerHugePages::start();
    let (job, web) = (rig.group("job-1"), rig.group("web"));
    let loads = [rig.fair_burners(&job, 1, 1), rig.fair_burners(&web, 2, 1)];
    let jobs = jobs(&rig, QUOTA);
    let burst = "quota = \"20ms/100ms\", burst = \"100ms\"";
    let both = format!("{jobs}{}", file_group("web", &web, burst));
    let daemon = Daemon::start(rig.host, &both);
    for (group, quota) in [(&job, 30_000), (&web, 20_000)] {
        rig.assert_quota(&shown(group), quota, 100_000);
        assert_eq!(quota_us(group), -1);
    }
    daemon.reload_with(&jobs);
    assert!(rig.is_scheduled(&job) && rig.slot(&web).is_none());
    daemon.stop();
    loads.into_iter().for_each(|load| load.kill_hard());
    rig.assert_nothing_left();
}
