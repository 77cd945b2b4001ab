//! The daemon that loads the BPF scheduler, and loads it again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::enforcer::EnforcerKind;

use crate::common::{SetOnDrop, is_stopped, wait_until};
use crate::daemon_rig::{Daemon, is_idle, of_cgroup, quota_us, rule, shown};
use crate::rig::{Rig, cgroup_id, rig, state};

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
                assert!(holds(), "nothing holds the limit");
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _over = SetOnDrop(&is_over);
        act();
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
    let command = rig
        .host
        .sleeper("sleeper", "--class batch --quota 20ms/100ms");
    let own = rig.host.batch("sleeper");
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
}

/// Processes of a group, so many that it takes a moment to move them.
const NR_MOVED: usize = 200;

/// Whether a quota of the kernel or a slot of the scheduler limits a process where it is.
fn is_limited(rig: &Rig, pid: i32) -> bool {
    let hierarchy = rig.host.hierarchy();
    let at = CpuGroup::at(hierarchy, hierarchy.cgroup_of(pid).unwrap());
    let around: Vec<CpuGroup> = std::iter::successors(Some(at), CpuGroup::parent).collect();
    let has_quota = |group: &CpuGroup| {
        let bandwidth = group.read_cpu_max();
        bandwidth.is_ok_and(|bandwidth| bandwidth.quota_usec.is_some())
    };
    // Where no file has one the scheduler is there, and can be asked.
    around.iter().any(has_quota) || {
        let slots = rig.slots();
        let mut ids = around
            .into_iter()
            .filter_map(|group| group.bound().ok()?.inode());
        ids.any(|id| slots.contains(&id))
    }
}

#[test]
fn a_group_that_is_made_anew_is_limited_before_its_processes_are_in_it() {
    let rig = rig();
    let text_of = |enforcer: &str| format!("enforcer = \"{enforcer}\"\n");
    let daemon = Daemon::start(rig.host, &text_of("cgroup"));
    let words = "run --quota 20ms/100ms --cap 10% --soft-cap 5% --name many -- sh -c";
    let many = format!(
        "trap 'kill $(jobs -p)' TERM; for i in $(seq {NR_MOVED}); do sleep 100000 & done; wait"
    );
    let command = rig.host.start(words.split(' ').chain([&*many]));
    let first = rig.host.soft("many");
    let processes = || first.all_processes().unwrap_or_default();
    wait_until("all are there", || processes().len() > NR_MOVED);
    let pid = processes()[0];
    let place = || rig.host.hierarchy().cgroup_of(pid).unwrap();
    // Commands do not wait for an owner that is stopped: a signal has it reload.
    let limited_in_change_to = |enforcer: &str, kind: EnforcerKind| {
        let before = place();
        daemon.write(&text_of(enforcer));
        daemon.send(Signal::SIGHUP);
        while place() == before {}
        // While it moves the others.
        daemon.send(Signal::SIGSTOP);
        wait_until("it is stopped", || is_stopped(daemon.pid()));
        let is_limited = catch_unwind(AssertUnwindSafe(|| is_limited(&rig, pid)));
        daemon.send(Signal::SIGCONT);
        assert!(is_limited.unwrap(), "nothing limits it in {:?}", place());
        wait_until("it is reloaded", || daemon.state().daemon.enforcer == kind);
    };
    limited_in_change_to("sched-ext", EnforcerKind::SchedExt);
    assert_eq!(rig.quota_in_force("many"), (20_000, 100_000));
    assert_eq!(rig.nr_slots(), 1);
    limited_in_change_to("cgroup", EnforcerKind::Cgroup);
    command.stop();
    daemon.stop();
}
